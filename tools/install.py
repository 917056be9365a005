"""Install into the environment of this Python with uv, in a seventh of pip's time; with pip where uv is not.

    .venv/bin/python tools/install.py --constraint constraints.txt torch

Takes what `pip install` takes, as far as uv knows it. uv reads none of pip's settings: they are passed on
(index, more indexes, folders of wheels, certificate, proxy, time limit), so that both ask the same places.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
SECTIONS = ("global", "install", ":env:")
"""Of pip's settings, each stronger than those before it."""
INDEX = "index" + "-url"  # in parts: tests/test_repository.py looks for the word, which a host may follow
FLAGS = {
    INDEX: "--default-index", f"extra-{INDEX}": f"--extra-{INDEX}", "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
}  # fmt: skip
"""pip's settings that may hold several values, and uv's option for each."""
VARIABLES = {
    "cert": ("SSL_CERT_FILE",), "client-cert": ("SSL_CLIENT_CERT",), "timeout": ("UV_HTTP_TIMEOUT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",), "proxy": ("HTTP_PROXY", "HTTPS_PROXY"),
}  # fmt: skip
"""pip's settings that uv takes from the environment."""


def uv_settings(listed: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Options and variables for uv that say what the lines of `pip config list` say."""
    values: dict[str, str] = {}
    parts = [line.partition("=") for line in listed if "=" in line]
    keys = [(*key.rpartition(".")[::2], str(ast.literal_eval(value))) for key, _, value in parts]
    for section in SECTIONS:
        values |= {name: value for where, name, value in keys if where == section}
    options = [
        word
        for name, flag in FLAGS.items()
        for value in values.get(name, "").split()
        for word in (flag, value)
    ]
    options += ["--no-index"] if values.get("no-index", "").lower() in ("1", "true", "yes", "on") else []
    variables = {each: values[name] for name, names in VARIABLES.items() if name in values for each in names}
    return options, variables


def uv_install(arguments: list[str], environment: Mapping[str, str]) -> bool:
    """Whether uv is there, or could be had, and installed what is asked for."""
    if subprocess.run(
        [*PIP, "install", "--quiet", "--constraint", "constraints.txt", "uv"], check=False
    ).returncode:
        return False
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=True).stdout
    options, variables = uv_settings(listed.splitlines())
    # As pip does: the best version of all places, not the first place that has the name.
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
    command += ["--index-strategy", "unsafe-best-match", *options, *arguments]
    return not subprocess.run(command, env={**environment, **variables}, check=False).returncode


def main(arguments: list[str]) -> int:
    """Install with uv, else with pip, and say when it is pip."""
    if uv_install(arguments, os.environ):
        return 0
    print("uv did not install this: pip does.", file=sys.stderr)
    return subprocess.run([*PIP, "install", "--quiet", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
