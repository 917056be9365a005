"""`tools/install.py`: uv asks the places that pip's settings name, and pip installs where uv does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

import install


def test_every_location_is_passed_on_and_the_stronger_section_wins() -> None:
    options, variables = install.uv_settings(
        [
            ":env:.find-links='wheels'",
            "global.cert='/certificates.pem'",
            f"global.extra-{install.INDEX}='file:///one file:///two'",
            "global.find-links='not asked'",
            f"install.{install.INDEX}='https://example.org/simple?a=b'",
            "global.timeout='60'",
            "download.find-links='not of install'",
        ]
    )
    assert options == [
        "--default-index", "https://example.org/simple?a=b",
        f"--extra-{install.INDEX}", "file:///one", f"--extra-{install.INDEX}", "file:///two",
        "--find-links", "wheels",
    ]  # fmt: skip
    assert variables == {"SSL_CERT_FILE": "/certificates.pem", "UV_HTTP_TIMEOUT": "60"}


def test_locations_on_lines_of_their_own() -> None:
    options, _ = install.uv_settings([r"global.find-links='\n/one\n/two'", "global.no-index='true'"])
    assert options == ["--find-links", "/one", "--find-links", "/two", "--no-index"]


@pytest.mark.parametrize("broken", [(), ("pip",), ("uv",), ("pip", "uv")], ids="-".join)
def test_pip_installs_where_uv_does_not(monkeypatch, capsys, broken: tuple[str, ...]) -> None:
    """`pip`: uv cannot be had from it; `uv`: uv itself fails."""
    asked: list[list[str]] = []

    def done(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(list(command))
        getting_uv = command[-1] == "uv"
        failed = ("pip" in broken and getting_uv) or ("uv" in broken and command[2] == "uv")
        return subprocess.CompletedProcess(command, int(failed), stdout="")

    monkeypatch.setattr(subprocess, "run", done)
    assert install.main(["--constraint", "constraints.txt", "torch"]) == 0
    assert asked[-1][-3:] == ["--constraint", "constraints.txt", "torch"]
    assert asked[-1][:3] == [sys.executable, "-m", "pip" if broken else "uv"]
    assert ("pip does" in capsys.readouterr().err) == bool(broken)
