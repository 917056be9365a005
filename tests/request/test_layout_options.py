"""Layouts as options and back."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from precision_time.diagnostics import Diagnostics
from precision_time.errors import ConfigError, LayoutError, PrecisionTimeError
from precision_time.parallel.layout import CpCommType, Layout, Offload, PipelineSchedule, Recompute
from precision_time.request.layout import fields_of, layout_of
from precision_time.request.request import Request
from precision_time.request.schema import RequestFields
from precision_time.workload.resolve import load_workload
from precision_time.workload.workload import Workload

DEGREES = st.sampled_from([1, 2, 4])
OPTIONS = st.fixed_dictionaries(
    {"uneven": st.just(True)},
    optional={
        **{name: DEGREES for name in ("tp", "pp", "cp", "ep", "etp", "vpp", "num_microbatches")},
        "expert_capacity_factor": st.sampled_from([0.0, 1.0, 1.25]),
        "expert_nodes": st.sampled_from([0, 4]),
        "expert_overlap": st.booleans(),
        "rank_order": st.sampled_from(["tp-cp-dp-pp", "dp-tp-cp-pp", "tp-cp-ep-dp-pp"]),
        "zero_stage": st.integers(0, 3),
        "dp_shard": st.sampled_from([0, 1, 2]),
        "reshard_after_forward": st.booleans(),
        "prefetch": st.integers(0, 3),
        "offload": st.sampled_from(Offload),
        "data_parallel_engine": st.sampled_from(["ddp", "dataparallel", "parameter-server", "none"]),
        "recompute": st.sampled_from(Recompute),
        "recompute_layers": st.sampled_from([0, 0.5, 8, 0.3]),
        "recompute_modules": st.sampled_from(["core_attn", "core_attn,layernorm"]),
        "sequence_parallel": st.booleans(),
        "cp_comm_type": st.sampled_from(CpCommType),
        "schedule": st.sampled_from(PipelineSchedule),
    },
)


@cache
def llama() -> Workload:
    return load_workload("llama3-8b")


def layout(options: dict[str, Any]) -> Layout:
    return layout_of(RequestFields.of({"model": "llama3-8b", **options}), llama(), 64, Diagnostics())


@settings(max_examples=100)
@given(OPTIONS)
def test_a_layout_is_the_layout_of_its_options(options: dict[str, Any]) -> None:
    try:
        made = layout(options)
    except (ConfigError, LayoutError):
        assume(False)
    again = fields_of(made)
    assert layout({**again, "uneven": True}) == made
    assert fields_of(layout({**again, "uneven": True})) == again


def test_stages_of_unlike_layers_survive() -> None:
    made = layout({"pp": 4, "stage_layers": "7,9,8x2"})
    assert made.stage_layers == (7, 9, 8, 8)
    assert layout(fields_of(made)) == made


def test_no_options_are_plain_data_parallelism() -> None:
    assert layout({}) == Layout(dp=64)


@given(st.text("0123456789.e-nif ", max_size=12))
def test_any_number_of_layers_is_read_or_refused(word: str) -> None:
    try:
        made = layout({"recompute": "full", "recompute_layers": word})
    except PrecisionTimeError as error:
        assert "recompute_layers=" in str(error) and "To fix: " in str(error)
    else:
        assert 0.0 < made.recompute_share <= 1.0


@given(st.text("0123456789x,tpcdl-é ", max_size=12), st.sampled_from(["stage_layers", "rank_order"]))
def test_any_words_for_stages_and_orders_are_read_or_refused(words: str, name: str) -> None:
    try:
        layout({name: words, "pp": 2})
    except (ConfigError, LayoutError) as error:
        assert "To fix: " in str(error)


@pytest.mark.parametrize("word", ["1e400", "nan", "inf", "-1", "33", "2.5"])
def test_numbers_that_are_none_are_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="recompute_layers=.* To fix: "):
        layout({"recompute": "full", "recompute_layers": word})


@pytest.mark.parametrize(
    ("given", "mode"), [("recompute_layers", "selective"), ("recompute_modules", "full")]
)
def test_what_is_of_another_mode_is_refused(given: str, mode: str) -> None:
    value = 8 if given == "recompute_layers" else "core_attn"
    with pytest.raises(ConfigError, match=f"{given}=.* does not apply: .* got recompute={mode}. To fix: "):
        layout({given: value, "recompute": mode})


def test_layers_alone_say_full_and_modules_selective() -> None:
    assert layout({"recompute_layers": 16}) == layout({"recompute": "full", "recompute_layers": 0.5})
    assert layout({"recompute_modules": "core_attn"}).recompute is Recompute.SELECTIVE


INTERLEAVED = {"model": "llama3-70b", "device": "H100", "gpus": 64, "tp": 4, "pp": 4, "vpp": 5}


@pytest.mark.parametrize(
    "batch",
    [
        {"batch_size": 1, "global_batch_size": 128},
        {"batch_size": 1, "global_batch_tokens": 128 * 8192},
        {"batch_size": 1, "num_microbatches": 32},
    ],
)
def test_a_global_batch_says_the_micro_batches_of_an_interleaved_pipeline(batch: dict[str, Any]) -> None:
    assert Request(**INTERLEAVED, **batch).resolve().layout.num_microbatches == 32


@pytest.mark.parametrize("batch", [{"batch_size": 1, "global_batch_size": 12}, {"batch_size": 1}])
def test_micro_batches_of_an_interleaved_pipeline_come_in_groups(batch: dict[str, Any]) -> None:
    with pytest.raises(LayoutError, match="groups of pp"):
        Request(**INTERLEAVED, **batch).resolve()
