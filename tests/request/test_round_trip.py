"""A request survives the command line and every kind of file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta

from front_door import request_arguments
from precision_time.corpus.jobs import request_of
from precision_time.corpus.measurement import Measurement
from precision_time.errors import ConfigError
from precision_time.request.files import read_requests
from precision_time.request.request import Request
from precision_time.request.schema import GLOBAL_BATCHES, RUN_LENGTHS, request_fields

SUFFIXES = (".yaml", ".toml", ".json", ".jsonl", ".csv")
WORDS = st.text("abcXYZ019éß .:_/+-=,'\"#", min_size=1, max_size=12).filter(
    lambda text: text == text.strip() and not text.startswith("-")
)
NAMES = WORDS.filter(lambda text: "," not in text)
"""A comma stands between several values."""
SIZES = st.dictionaries(
    st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True),
    st.one_of(st.integers(-(2**40), 2**40), st.floats(-1e9, 1e9), WORDS, st.lists(st.integers(1, 99))),
    min_size=1,
    max_size=3,
)  # fmt: skip
SPECIAL = {
    "model": st.sampled_from(["resnet50", "bert-large", "12", "true", "a b"]),
    "sizes": SIZES,
    "precision": NAMES,  # mappings: tests/precision/test_own.py
    "custom": st.just("/somewhere/mine.toml"),
    "calibration": st.just("/somewhere/cluster.json"),
    "predictor": st.just("/somewhere/mine"),
    "inputs": st.lists(st.sampled_from(["ids:int64[B,512]", "float32[B,3,32,32]"]), min_size=1, max_size=2),
    "forward": st.sampled_from(["training_step", "loss"]),
    "loss": st.just("my_package.losses:mine"),
    "anchors": st.lists(
        st.fixed_dictionaries(
            {"step_time_s": st.floats(1e-6, 1e6)},
            optional={"gpus": st.integers(1, 99), "precision": st.sampled_from(["tf32", "fp16:apex-o2"])},
        ),
        min_size=1,
        max_size=3,
    ),
}


def values_of(annotation: Any, metadata: Sequence[Any]) -> st.SearchStrategy[Any]:
    """Valid values of a field, from its type and its limits."""
    origin, limits = get_origin(annotation), list(metadata)
    if origin is Annotated:
        return values_of(get_args(annotation)[0], [*limits, *get_args(annotation)[1:]])
    if origin in (Union, UnionType):
        return st.one_of(*(values_of(each, limits) for each in get_args(annotation) if each is not NoneType))
    if origin is Literal:
        return st.sampled_from(get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return st.sampled_from([each.value for each in annotation])
    bounds = [each for each in limits if isinstance(each, Meta)]
    low = next((bound for each in bounds for bound in (each.ge, each.gt) if bound is not None), None)
    high = next((bound for each in bounds for bound in (each.le, each.lt) if bound is not None), None)
    if annotation is bool:
        return st.booleans()
    if annotation is int:
        return st.integers(low, high)
    if annotation is float:
        open_ends = {"exclude_min": any(each.gt is not None for each in bounds)}
        open_ends["exclude_max"] = any(each.lt is not None for each in bounds)
        return st.floats(low, high, allow_subnormal=False, **open_ends)
    assert annotation is str, annotation
    return NAMES


FIELDS = {
    name: SPECIAL[name] if name in SPECIAL else values_of(info.annotation, info.marks)
    for name, info in request_fields()
    if name not in ("example_inputs", "cluster")
}
JOBS = st.fixed_dictionaries(
    {"model": FIELDS["model"]},
    optional={name: values for name, values in FIELDS.items() if name != "model"},
).map(lambda fields: {name: fields[name] for name in fields if not _said_before(name, fields)})


def _said_before(name: str, fields: dict[str, Any]) -> bool:
    """Whether another field says the same in other words: a request has one of them at most."""
    alike = next((names for names in (RUN_LENGTHS, GLOBAL_BATCHES) if name in names), ())
    return any(other in fields for other in alike[: alike.index(name)] if other != name) if alike else False


@given(JOBS)
def test_a_request_is_the_fields_that_it_was_made_of(fields: dict[str, Any]) -> None:
    asked = Request.of(fields)
    assert asked.given().keys() == fields.keys()
    assert Request.of(asked.given()) == asked == asked.with_()
    nested = {name: fields[name] for name in fields if name in type(asked.layout).model_fields}
    outer = {name: value for name, value in fields.items() if name not in nested}
    assert Request.of({**outer, "layout": nested}) == asked


@given(JOBS)
def test_the_command_line_gives_the_same_request(
    parsed: Callable[[Sequence[str]], Request], fields: dict[str, Any]
) -> None:
    asked = Request.of(fields)
    assert parsed(request_arguments(asked)) == asked


@settings(max_examples=30)
@given(st.lists(JOBS, min_size=1, max_size=3))
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_give_the_same_requests(
    filed: Callable[..., list[Request]], suffix: str, jobs: list[dict[str, Any]]
) -> None:
    asked = [Request.of(fields) for fields in jobs]
    assert filed([each.given() for each in asked], suffix) == asked


def test_code_is_named_by_a_command_line_but_not_by_a_file(
    parsed: Callable[[Sequence[str]], Request], filed: Callable[..., list[Request]]
) -> None:
    assert parsed(["module:function"]).model == "module:function"
    with pytest.raises(ConfigError, match="To fix: "):
        filed([{"model": "module:function"}], ".yaml")


def test_measured_runs_survive_command_line_and_files(
    sample: list[Measurement],
    parsed: Callable[[Sequence[str]], Request],
    filed: Callable[..., list[Request]],
) -> None:
    asked = [request_of(row) for row in sample]
    assert [parsed(request_arguments(each)) for each in asked] == asked
    for suffix in SUFFIXES:
        assert filed([each.given() for each in asked], suffix) == asked


def test_a_list_of_jobs_shares_what_stands_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text("model: resnet50\ngpus: 8\njobs:\n- precision: tf32\n- gpus: 2\n", encoding="utf-8")
    assert read_requests(path) == [
        Request.of({"model": "resnet50", "gpus": 8, "precision": "tf32"}),
        Request.of({"model": "resnet50", "gpus": 2}),
    ]


def test_options_take_the_place_of_what_a_job_file_says(
    tmp_path: Path, parsed: Callable[[Sequence[str]], Request]
) -> None:
    path = tmp_path / "job.toml"
    path.write_text('model = "resnet50"\ngpus = 8\nzero = 1\n[sizes]\nlayers = 3\n', encoding="utf-8")
    asked = parsed([str(path), "--gpus", "16", "--no-stragglers"])
    assert asked == Request.of(
        {"model": "resnet50", "gpus": 16, "zero_stage": 1, "sizes": {"layers": 3}, "stragglers": False}
    )


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    lines = ("model: resnet50", "custom: mine.toml", "calibration: ours.json", "predictor: mine")
    path.write_text("\n".join(lines), encoding="utf-8")
    (asked,) = read_requests(path)
    assert asked.given() == {
        "model": "resnet50",
        "custom": str(tmp_path / "mine.toml"),
        "calibration": str(tmp_path / "ours.json"),
        "predictor": str(tmp_path / "mine"),
    }
