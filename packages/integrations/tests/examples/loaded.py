"""Runs examples in copies of one process that has loaded their frameworks: loading takes most of their time.

Started with the files of all examples. Each line that it reads is a job: the example, its folder, its
environment and where its output goes. It answers each with the exit code.
"""

from __future__ import annotations

import ast
import gc
import json
import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from precision_time_integrations.online.imports import declare_torchvision

MOST_S = 300


def first_imports(example: Path) -> ast.Module:
    """The imports that an example begins with: later ones may wait for variables that it sets first."""
    _docstring, *rest = ast.parse(example.read_text(encoding="utf-8")).body
    imports = takewhile(lambda each: isinstance(each, (ast.Import, ast.ImportFrom)), rest)
    return ast.Module(body=list(imports), type_ignores=[])


def run(job: dict[str, Any]) -> None:
    """What `python example.py` does in a new process."""
    signal.alarm(MOST_S)
    for number, name in enumerate((os.devnull, job["out"], job["err"])):
        opened = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    tempfile.tempdir = None
    sys.argv = [job["example"]]
    sys.path[0] = str(Path(job["example"]).parent)
    runpy.run_path(job["example"], run_name="__main__")


def main() -> None:
    examples = [Path(name) for name in sys.argv[1:]]
    if any(example.stem == "huggingface_trainer" for example in examples):
        declare_torchvision()  # where it does not load beside this torch, it is asked for all the same
    for example in examples:
        with suppress(ImportError):  # what an example needs is not there: its test is skipped
            exec(compile(first_imports(example), str(example), "exec"), {})
    gc.collect()
    gc.freeze()  # what is loaded is not walked, and copied, by every copy
    copies = multiprocessing.get_context("fork")
    while line := os.read(0, 65536).decode():  # unbuffered: nothing may be left in a copy
        copy = copies.Process(target=run, args=(json.loads(line),))
        copy.start()
        copy.join()
        os.write(1, f"{copy.exitcode}\n".encode())


main()
