"""Options, signatures and help are read off the fields of a request."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import pytest
import typer

from precision_time import compare_precisions, find_layouts, predict_time
from precision_time.cli.main import load_command
from precision_time.cli.request_options import request_options
from precision_time.explain.precision import explain
from precision_time.fields import Count, Option
from precision_time.planning.run.schema import RunOptions
from precision_time.request.schema import LAYOUT_OPTIONS, RequestFields
from precision_time.request.signature import takes_request_fields
from precision_time.request.validation import Field

PYTHON_ONLY = {"example_inputs", "cluster"}
"""Fields that no text can give."""
FIELDS = RequestFields.model_fields


def flags_of(name: str) -> tuple[str, ...]:
    option = FIELDS[name].option
    assert option is not None
    long = [flag for flag in option.flags if flag.startswith("--")] or [f"--{name.replace('_', '-')}"]
    return (*long, *option.flags)


@pytest.fixture(scope="module")
def shown() -> dict[str, str]:
    """Help of `predict` by option: what stands in the line of its flag."""
    context = typer.Context(load_command("predict"), info_name="predict")
    return {
        flag: str(parameter.get_help_record(context))
        for parameter in load_command("predict", every_option=True).params
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }


def test_every_field_is_an_option_or_for_python_only() -> None:
    assert {name for name, info in FIELDS.items() if info.option is None} == PYTHON_ONLY


@pytest.mark.parametrize("name", sorted(FIELDS.keys() - PYTHON_ONLY - {"model"}))
def test_the_command_shows_every_field_and_its_help(shown: dict[str, str], name: str) -> None:
    option = FIELDS[name].option
    assert option is not None
    for flag in flags_of(name):
        assert flag in shown
        if name != "precision":  # of which a command takes several
            assert option.help in shown[flag]
        if option.default:
            assert f"Default: {option.default}" in shown[flag]


def test_the_command_has_no_other_options(shown: dict[str, str]) -> None:
    of_fields = {flag for name in FIELDS.keys() - PYTHON_ONLY for flag in flags_of(name)}
    of_fields |= {f"--{name.replace('_', '-')}" for name in RunOptions.model_fields}
    negated = {flag for flag in shown if flag.startswith("--no-")}
    assert (
        shown.keys() - negated - of_fields
        == {
            *(
                "--jobs",
                "--sort",
                "--baseline",
                "--memory-timeline",
                "--trace",
                "--emit",
                "--out",
                "-o",
                "--set",
                "--whole-run",
            ),
            *("--brief", "--why", "--json", "--help", "-h", "model"),
        }
        & shown.keys()
    )
    assert {f"--{flag.removeprefix('--no-')}" for flag in negated} <= of_fields


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        (predict_time, set()),
        (compare_precisions, {"precision"}),
        (find_layouts, {*LAYOUT_OPTIONS, "batch_size"}),
        (explain, {"gpus", "tp", "zero_stage"}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_calls_have_the_signature_and_the_help_of_the_fields(
    call: Callable[..., Any], missing: set[str]
) -> None:
    parameters = inspect.signature(call).parameters
    assert not missing & parameters.keys()
    fields = parameters.keys() & FIELDS.keys() - {"model"}
    assert {"device", "example_inputs"} <= fields
    assert missing or fields == FIELDS.keys() - {"model"}
    for name in fields:
        default = FIELDS[name].default
        assert parameters[name].default == default
        option = FIELDS[name].option
        assert option is None or f"{name}: {option.help}" in (call.__doc__ or "")


def test_help_is_short() -> None:
    for name in FIELDS.keys() - PYTHON_ONLY:
        option = FIELDS[name].option
        assert option is not None
        assert 8 < len(option.help) < 200, name


def test_a_new_field_is_a_new_option_and_a_new_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    added = Field.of(
        "brand_new",
        Annotated[Count | None, Option(help="Of a kind nobody has seen.", flags=("-k",), default="seven")],
        None,
    )
    monkeypatch.setitem(RequestFields.model_fields, "brand_new", added)

    @request_options()
    def command(model: str, **given: Any) -> None:
        """Do."""

    @takes_request_fields()
    def call(model: Any, **options: Any) -> Any:
        """Do."""
        return options

    app = typer.Typer()
    app.command()(command.with_every_option())  # type: ignore[attr-defined]
    assert "brand_new" in command.fields()  # type: ignore[attr-defined]
    (option,) = [each for each in typer.main.get_command(app).params if each.name == "brand_new"]
    assert option.opts == ["--brand-new", "-k"]
    assert option.help == "Of a kind nobody has seen. Default: seven."  # type: ignore[attr-defined]
    assert inspect.signature(call).parameters["brand_new"].default is None
    assert "brand_new: Of a kind nobody has seen." in (call.__doc__ or "")
