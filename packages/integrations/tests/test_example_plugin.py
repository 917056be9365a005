"""The example package of plugins: what it adds is there by name, works, and leaves what is built in alone."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from precision_time import plugins, predict_time
from precision_time.cli import main as root
from precision_time.cost import stacks
from precision_time.errors import UnknownNameError
from precision_time.learn.table import job_table
from precision_time.request.request import Request
from precision_time_integrations.importers.api import import_runs
from precision_time_integrations.online import trainers
from precision_time_papers import registry
from precision_time_papers.testing import TablePredictorSuite

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "plugin"
NAME = "precision_time_example_plugin"


def declare(folder: Path, groups: dict[str, dict[str, str]], name: str = "their") -> None:
    """What an installer writes of a package's entry points."""
    package = folder / f"{name}-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        line
        for group, entries in groups.items()
        for line in (f"[precision_time.{group}]", *(f"{key} = {value}" for key, value in entries.items()), "")
    ]
    (package / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is searched for packages."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] in (NAME, "their_plugin")]:
        del sys.modules[name]
    monkeypatch.undo()
    plugins.forget_plugins()


@pytest.fixture
def example(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example, declared as its installation would."""
    declared = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]
    groups = {group.removeprefix("precision_time."): entries for group, entries in declared.items()}
    inside = {
        "routes",
        "captures",
        "executors",
        "price_lists",
        "trained_predictors",
    }  # which come with the package
    assert set(groups) == set(plugins.GROUPS) - inside
    monkeypatch.syspath_prepend(str(EXAMPLE / "src"))
    declare(folder, groups, name=NAME)
    plugins.forget_plugins()
    return importlib.import_module(NAME)


def install(folder: Path, group: str, code: str) -> None:
    (folder / "their_plugin.py").write_text(code)
    declare(folder, {group: {"theirs": "their_plugin:GIVEN"}})
    plugins.forget_plugins()


def test_device_and_stack_of_the_example_are_predicted(example: ModuleType) -> None:
    job = {"model": "resnet50", "batch_size": 64, "precision": "bf16-mixed", "gpus": 4}
    theirs = predict_time(device="example 48gb", stack="example-trainer", **job)
    assert (theirs.device, theirs.stack) == ("Example-48GB", "example-trainer")
    [said] = [item for item in theirs.diagnostics if item.code == "unmeasured-stack"]
    assert "its kind, pytorch-eager, answers for it" in said.text
    base = predict_time(device="L40S", stack="pytorch-eager", **job)
    assert theirs.analytical_step_time_s < base.analytical_step_time_s, "twice the bandwidth"
    stack = Request.of({"device": "L40S", "stack": "example-trainer", **job}).resolve().stack
    assert stack.fused_optimizer, "what the stack says"
    assert stack.compiler == "none" and stack.framework == "pytorch", "what its kind says"


def test_stack_of_a_plugin_answers_as_its_kind_in_what_was_learned(example: ModuleType) -> None:
    fields = {"model": "resnet50", "device": "A100-SXM4-80GB", "batch_size": 64}
    own, theirs = (
        job_table([Request.of({**fields, "stack": name}).resolve()])
        for name in ("pytorch-eager", "example-trainer")
    )
    assert own.names == theirs.names, "no column is added by what was never measured"
    columns = [index for index, name in enumerate(own.names) if name.startswith(("stack.", "suite."))]
    np.testing.assert_array_equal(own.features[:, columns], theirs.features[:, columns])


def test_importer_of_the_example(example: ModuleType, tmp_path: Path) -> None:
    log = tmp_path / "run.examplelog"
    log.write_text(
        "# example-log model=resnet50 batch_size=32\nstep=1 seconds=2.75\n"
        + "".join(f"step={step} seconds=0.31\n" for step in range(2, 12))
        + "the end\n"
    )
    found = import_runs([log], given={"device": "Example-48GB", "gpus": 1})
    (run,) = found.runs
    measured = run.measured()
    assert (run.importer, run.notes) == ("example-log", ("1 lines were not understood",))
    assert measured is not None and measured.complete
    assert measured.steady.step_time_s == pytest.approx(0.31)


def test_adapter_of_the_example_says_when_its_loop_ends(example: ModuleType) -> None:
    adapter = trainers.trainer_adapter("example-loop")
    assert adapter.installed
    said: list[str] = []
    batches = list(adapter.load()(range(30), total_steps=30, every=10, say=said.append))
    assert batches == list(range(30))
    assert len(said) == 3 and "left" in said[0]


def test_predictor_of_the_example_keeps_the_contract(example: ModuleType) -> None:
    entry = registry.PREDICTORS["median-factor"]
    assert entry in registry.chosen_predictors(["median-factor"])
    suite = TablePredictorSuite()
    for name in [name for name in dir(suite) if name.startswith("test_")]:
        getattr(suite, name)(entry)


def test_names_are_listed_and_completed(
    example: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from precision_time.cli.main import main
    from precision_time.cli.options import complete_device, complete_stack
    from precision_time_papers.cli.report import complete_predictor

    monkeypatch.setenv("COLUMNS", "160")

    def printed(*words: str) -> str:
        with pytest.raises(SystemExit, match="0"):
            main(words)
        return capsys.readouterr().out

    assert complete_device("Example") == ["Example-48GB"]
    assert complete_stack("example") == ["example-trainer"]
    assert complete_predictor("ours,median") == ["ours,median-factor"]
    for command, name in (
        ("devices", "Example-48GB"),
        ("stacks", "example-trainer"),
        ("predictors", "median-factor"),
        ("trainers", "example-loop"),
    ):
        assert name in printed(command)
    assert "example-log" in printed("import", "--formats")


@pytest.mark.parametrize(
    ("group", "code", "said"),
    [
        ("stacks", "GIVEN = {'ipu-poplar': {'kind': 'pytorch-eager', 'summary': 'S.'}}", "there is a stack"),
        ("stacks", "GIVEN = {'a': {'summary': 'Of no kind.'}}", "kind=''"),
        ("stacks", "GIVEN = {'a': {'kind': 'torchtune', 'summary': 'Of a variety.'}}", "must be one of"),
        ("stacks", "GIVEN = {'a': {'kind': 'jax-xla', 'summary': 'S.', 'zero_stage': 'x'}}", "zero_stage"),
        ("stacks", "GIVEN = {'a': {'kind': 'pytorch-eager', 'summary': 'S.', 'speed': 9}}", "speed"),
        ("stacks", "GIVEN = 7", "items"),
        ("predictors", "GIVEN = 7", "not iterable"),
        ("predictors", "GIVEN = ['ours']", "no PredictorEntry"),
        (
            "predictors",
            "from precision_time_papers.registry import PREDICTORS\nGIVEN = PREDICTORS['ours']",
            "there is a predictor",
        ),
        ("predictors", "raise SystemError('broken')", "SystemError: broken"),
        ("trainers", "GIVEN = [1]", "no TrainerAdapter"),
        (
            "trainers",
            "from precision_time_integrations.online.trainers import _BUILT_IN\nGIVEN = _BUILT_IN['keras']",
            "there is an adapter",
        ),
    ],
)  # fmt: skip
def test_plugin_that_breaks_its_rules_is_left_out(folder: Path, group: str, code: str, said: str) -> None:
    install(folder, group, code)
    read: dict[str, Callable[[], Any]] = {
        "stacks": stacks.stack_names,
        "predictors": lambda: tuple(registry.PREDICTORS),
        "trainers": lambda: tuple(trainers.trainer_adapters()),
    }
    with pytest.warns(RuntimeWarning, match="left out") as caught:
        names = read[group]()
    assert any(said in str(warning.message) and "their" in str(warning.message) for warning in caught)
    forget_path = sys.path.pop(sys.path.index(str(folder)))
    plugins.forget_plugins()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read[group]() == names, "all the rest, and nothing else, is there"
    sys.path.insert(0, forget_path)


def test_unknown_trainer_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="lightning"):
        trainers.trainer_adapter("lightnin")


@pytest.mark.slow
def test_example_installs_without_a_network(tmp_path: Path) -> None:
    target = tmp_path / "installed"
    copy = tmp_path / "plugin"
    subprocess.run(["cp", "-r", str(EXAMPLE), str(copy)], check=True)
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONWARNINGS": ""}
    install = [
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        target,
        copy,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *map(str, install)],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    source = Path(plugins.__file__).parents[1]
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (target, source)))
    code = """
import json
from precision_time.cost.stacks import stack_names
from precision_time.hardware.catalog import known_device_names
from precision_time_integrations.importers.registry import importers
from precision_time_integrations.online.trainers import trainer_adapters
from precision_time_papers.registry import PREDICTORS
formats = [each.name for each in importers()]
names = (known_device_names(), stack_names(), PREDICTORS, formats, trainer_adapters())
ours = [sorted(name for name in group if name.lower().startswith(('example', 'median'))) for group in names]
print(json.dumps(ours))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        ["Example-48GB"], ["example-trainer"], ["median-factor"], ["example-log"], ["example-loop"],
    ]  # fmt: skip


@pytest.mark.parametrize("name", sorted(trainers._BUILT_IN))
def test_built_in_adapter_is_where_it_is_said_to_be(name: str) -> None:
    adapter = trainers.trainer_adapter(name)
    path = Path(trainers.__file__).with_name(f"{adapter.module.rpartition('.')[2]}.py")
    defined = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    assert adapter.attribute in defined


def test_command_of_the_example(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"--help": "hours", "hours resnet50 --epochs 90": " h\n"}
    for words, said in asked.items():
        with pytest.raises(SystemExit):
            root.main(["example", *words.split()])
        assert said in capsys.readouterr().out
