"""Every example runs in an empty folder with the real library, and prints what it says it prints.

In copies of one process that has loaded the libraries (`loaded.py`): loading takes most of the time, and the
largest wait for the night.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory

import pytest

from surface import SOURCES

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))
PRINTS = "# prints: "


WAIT = {
    "accelerate_tracker": pytest.mark.nightly(
        covered_by="packages/integrations/tests/online/test_accelerate.py::test_loop_is_predicted_told_logged_and_measured"
    ),
    "batch_size_finder": pytest.mark.nightly(
        covered_by="packages/integrations/tests/test_batch_size.py::test_accelerate_begins_at_the_prediction"
    ),
    "deepspeed_engine": pytest.mark.nightly(
        covered_by="packages/integrations/tests/online/test_deepspeed.py::test_the_first_batch_is_described_and_the_run_offered"
    ),
    "huggingface_trainer": pytest.mark.nightly(
        covered_by="packages/integrations/tests/online/test_transformers.py::test_run_is_predicted_told_logged_and_measured"
    ),
    "import_trackers": pytest.mark.nightly(
        covered_by="packages/integrations/tests/test_import_trackers.py::test_mlflow_store_gives_the_times_that_were_logged"
    ),
    "keras_callback": pytest.mark.nightly(
        covered_by="packages/integrations/tests/online/test_keras.py::test_a_fit_is_watched_and_trains_as_it_would_alone"
    ),
    "lightning_callback": pytest.mark.nightly(
        covered_by="packages/integrations/tests/online/test_lightning.py::test_fit_is_predicted_told_logged_and_measured"
    ),
    "optuna_study": pytest.mark.nightly(
        covered_by="packages/integrations/tests/test_optuna.py::test_the_study_ends_at_its_deadline"
    ),
    "profiler_trace": pytest.mark.nightly(
        covered_by="packages/integrations/tests/test_import_traces.py::test_trace_recorded_here_has_the_times_of_its_loop"
    ),
    "ray_train": pytest.mark.nightly(
        covered_by="packages/integrations/tests/online/test_ray_train.py::test_reports_are_counted_where_workers_say_nothing"
    ),
    "ray_tune_deadline": pytest.mark.nightly(
        covered_by="packages/integrations/tests/test_ray_tune.py::test_a_real_search_with_asha"
    ),
}
"""Examples whose framework takes seconds to load."""


def lines_of(example: Path, mark: str) -> list[str]:
    return [line[len(mark) :] for line in example.read_text("utf-8").splitlines() if line.startswith(mark)]


def environment_of(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HOME": str(folder),
        "KERAS_BACKEND": "torch",
        "OMP_NUM_THREADS": "1",
        "PRECISION_TIME_HOME": str(folder / "own"),
        "PYTHONPATH": os.pathsep.join(map(str, SOURCES.values())),
        "RAY_AUTH_MODE": "disabled",
        "RAY_TQDM_PATCH_PRINT": "0",  # else a message of a worker replaces the print that is being pickled
        "TMPDIR": str(folder),
    }


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Popen[str]]:
    """The process whose copies run the examples."""
    folder = tmp_path_factory.mktemp("loaded")
    examples = [
        each for each in EXAMPLES if os.environ.get("PRECISION_TIME_NIGHTLY") or each.stem not in WAIT
    ]
    command = [sys.executable, str(Path(__file__).with_name("loaded.py")), *map(str, examples)]
    with (
        (folder / "errors").open("w") as errors,
        Popen(
            command, cwd=folder, env=environment_of(folder), stdin=PIPE, stdout=PIPE, stderr=errors, text=True
        ) as process,  # fmt: skip
    ):
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "example",
    [pytest.param(each, marks=WAIT.get(each.stem, ())) for each in EXAMPLES],
    ids=[each.stem for each in EXAMPLES],
)
def test_example_runs(example: Path, tmp_path: Path, loaded: Popen[str]) -> None:
    assert lines_of(example, PRINTS), "it does not say what it prints"
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as short:
        out, err = Path(short) / "out", Path(short) / "err"
        job = {
            "example": str(example),
            "folder": str(tmp_path),
            "environment": {**environment_of(tmp_path), "RAY_TMPDIR": short},  # paths of sockets: 107 bytes
            "out": str(out),
            "err": str(err),
        }
        assert loaded.stdin is not None
        assert loaded.stdout is not None
        loaded.stdin.write(json.dumps(job) + "\n")
        loaded.stdin.flush()
        code = int(loaded.stdout.readline())
        printed, errors = (path.read_text(encoding="utf-8") for path in (out, err))
    _check(example, code, printed, errors)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_what_an_example_imports_of_the_package_is_there(example: Path) -> None:
    for each in ast.walk(ast.parse(example.read_text(encoding="utf-8"))):
        if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("precision_time"):
            module = import_module(each.module)
            assert [name.name for name in each.names if not hasattr(module, name.name)] == []


@pytest.mark.nightly(covered_by="packages/integrations/tests/examples/test_examples.py::test_example_runs")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_in_an_interpreter_of_its_own(example: Path, tmp_path: Path) -> None:
    """As a user starts it: nothing was loaded or declared before."""
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as short:
        environment = {**environment_of(tmp_path), "RAY_TMPDIR": short}
        done = subprocess.run(
            [sys.executable, str(example)], cwd=tmp_path, env=environment, capture_output=True,
            text=True, timeout=300, check=False,
        )  # fmt: skip
    _check(example, done.returncode, done.stdout, done.stderr)


def _check(example: Path, code: int, printed: str, errors: str) -> None:
    assert code == 0, errors[-3000:]
    for pattern in lines_of(example, PRINTS):
        assert re.search(pattern, printed), f"{pattern!r} is not in what it printed:\n{printed[-3000:]}"
