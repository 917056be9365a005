"""Write public recipes anew: their keys and values alone, for the tests.

    python packages/integrations/tests/recipes/collect.py MIRRORS

MIRRORS holds `OWNER+NAME/repo`, git folders of the repositories in `sources.csv`. Comments, code and texts of
more than a line are left out: a document is written from its parsed values, a shell script as the commands in
it that start a training, a Python script as the calls and assignments of constants that the reader would see.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from precision_time_integrations.commands.expand import as_written
from precision_time_integrations.commands.launchers import unwrapped
from precision_time_integrations.commands.shell import read_shell
from precision_time_integrations.recipes.files import code_of_notebook
from precision_time_integrations.recipes.sources import read_source

HERE = Path(__file__).parent
_LONGEST = 200
"""Characters of a value; longer ones are texts: templates, prompts."""
_KEPT_CALLS = re.compile(
    r"(\w+\.)?(from_pretrained|get_peft_model|\w*Config|\w*Arguments|\w*Trainer|load_dataset|\w+_recipe|\w*Strategy|"
    r"\w*DataModule)"
)


def main(mirrors: Path) -> None:
    """Write every file of the table."""
    with (HERE / "sources.csv").open() as table:
        for row in csv.DictReader(table):
            folder = mirrors / row["repository"].replace("/", "+") / "repo"
            asked = ["git", "-C", str(folder), "show", f"{row['commit']}:{row['path']}"]
            text = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
            target = HERE / "public" / row["file"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(rewritten(row["file"], text))


def rewritten(name: str, text: str) -> str:
    """Keys and values of a recipe."""
    suffix = Path(name).suffix
    if suffix in (".yaml", ".yml"):
        return yaml.safe_dump(_short(yaml.safe_load(text)), sort_keys=False, width=200)
    if suffix == ".json":
        return json.dumps(_short(json.loads(text)), indent=1) + "\n"
    if suffix == ".toml":
        return "".join(_tables(_short(tomllib.loads(text)), ""))
    return _calls(name, text) if suffix == ".py" else _commands(text)


def _short(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _short(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_short(item) for item in tree]
    if isinstance(tree, str) and (len(tree) > _LONGEST or "\n" in tree.strip()):
        return "left out"
    return tree


def _tables(tree: Mapping[str, Any], prefix: str) -> list[str]:
    plain = {key: value for key, value in tree.items() if not isinstance(value, Mapping)}
    found = [f"[{prefix.rstrip('.')}]\n"] if prefix and plain else []
    found += [f"{key} = {json.dumps(value)}\n" for key, value in plain.items()]
    for key, value in tree.items():
        if isinstance(value, Mapping):
            found += _tables(value, f"{prefix}{key}.")
    return found


def _commands(text: str) -> str:
    found = []
    for command in read_shell(text).commands:
        if (
            unwrapped(command.words, lambda _: None).script
            or unwrapped(command.words, lambda _: None).shell_file
        ):
            words = [
                f"{name}={as_written(value)}" for name, value in command.environment.items() if name.isupper()
            ]
            words += [as_written(word) for word in command.words]
            found.append(
                " ".join(word if re.match(r"\$|\w+=\$", word) else shlex.quote(word) for word in words)
            )
    return "\n".join(["#!/bin/bash", *found]) + "\n"


def _calls(name: str, text: str) -> str:
    source = read_source(name, code_of_notebook(name, text) if text.lstrip().startswith("{") else text)
    modules = sorted(
        {item.split(".")[0] for item in source.imports} & {"unsloth", "trl", "nemo", "transformers"}
    )
    lines = [f"import {module}" for module in modules]
    for call in source.calls:
        if _KEPT_CALLS.fullmatch(call.name):
            values = {key: value for key, value in call.values.items() if not value.unknown}
            known = [repr(_short(value.value)) for key, value in values.items() if key.isdigit()]
            known += [f"{key}={_short(value.value)!r}" for key, value in values.items() if key.isidentifier()]
            lines.append(f"{call.name}({', '.join(known)})")
    lines += [f"{key} = {value.value!r}" for key, value in source.settings.items() if not value.unknown]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
