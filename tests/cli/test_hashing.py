"""What commands print does not depend on how Python hashes names."""

from __future__ import annotations

import os
import subprocess
import sys

COMMANDS = (
    "devices H100-SXM5-80GB", "models --search bert --json", "precisions", "stacks", "schema job",
    "predict resnet50 -d A100,H100 -g 8 -p fp16-mixed,tf32 --json", "predict gpt2 --tpp 3",
    "predict gpt2 --fsdp 1", "predict resnet50 -d A1000", "explain resnet50 -p fp16-mixed --json",
)  # fmt: skip
RUN = """
import sys
from precision_time.cli.main import main
for words in sys.argv[1:]:
    try:
        main(words.split())
    except SystemExit as ended:
        print(ended.code, flush=True)
"""


def test_tables_and_errors_do_not_depend_on_hashing() -> None:
    said = []
    for seed in ("1", "2"):
        found = subprocess.run(
            [sys.executable, "-c", RUN, *COMMANDS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=True,
        )
        said.append(found.stdout)
    assert said[0] == said[1]
    assert said[0].count(b'"step_time_s"') == 4
