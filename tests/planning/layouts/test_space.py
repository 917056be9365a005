"""Candidates: all valid, none twice, all that the caller fixed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from precision_time.cost.search import space_of
from precision_time.errors import ConfigError, UnknownNameError
from precision_time.parallel.layout import Layout, PipelineSchedule, Recompute
from precision_time.parallel.shape import model_shape
from precision_time.parallel.space import Refusals, Space
from precision_time.parallel.validation import check_model_layout
from precision_time.request.layout import parse_fixed

from .conftest import Question, question_of


def layouts_of(space: Space) -> Iterator[Layout]:
    for frame in space.frames():
        for batch in frame.batches:
            for mode in frame.recompute:
                yield frame.layout(batch, mode)


@pytest.mark.parametrize("name", ["small", "experts"])
def test_every_candidate_holds_and_none_comes_twice(name: str, request: pytest.FixtureRequest) -> None:
    problem: Question = request.getfixturevalue(name)
    found = list(layouts_of(space_of(*problem)))
    shape = model_shape(problem.job.workload.graph)
    for layout in found[::7]:
        check_model_layout(layout, shape, num_devices=16)
        assert layout.global_batch_size == problem.batch
    assert len(set(found)) == len(found) > 1000


def test_the_space_holds_every_axis(small: Question) -> None:
    found = list(layouts_of(space_of(*small)))
    seen = {
        name: {getattr(layout, name) for layout in found} for name in ("tp", "pp", "zero_stage", "schedule")
    }
    assert seen["tp"] == {1, 2, 4, 8}
    assert seen["pp"] == {1, 2, 4, 8, 16}
    assert seen["zero_stage"] == {0, 1, 3}
    assert seen["schedule"] == set(PipelineSchedule) - {PipelineSchedule.GPIPE}
    assert {layout.dp_shard for layout in found} == {0, 2, 4, 8}
    assert {layout.recompute for layout in found} == set(Recompute)


def test_experts_have_degrees_of_their_own(experts: Question) -> None:
    found = {
        (layout.ep, layout.tensor_degree_of_experts, layout.tp) for layout in layouts_of(space_of(*experts))
    }
    assert {ep for ep, _, _ in found} == {1, 2, 4, 8, 16}
    assert {(8, 1, 2), (8, 2, 2)} <= found


def test_layers_that_do_not_divide_are_split_unevenly() -> None:
    problem = question_of("llama3.2-3b", "H100-SXM5-80GB", 8, 32)
    shape = model_shape(problem.job.workload.graph)
    assert shape.num_layers == 28
    found = [layout for layout in layouts_of(space_of(*problem)) if layout.pp == 8]
    assert found
    assert all(sum(layout.stage_layers) == 28 and len(layout.stage_layers) == 8 for layout in found)
    assert {layout.schedule for layout in found} == {
        PipelineSchedule.ONE_F_ONE_B,
        PipelineSchedule.ZERO_BUBBLE,
    }


def test_tensor_ranks_leave_the_node_only_when_told(small: Question) -> None:
    assert max(layout.tp for layout in layouts_of(space_of(*small))) == 8
    assert max(layout.tp for layout in layouts_of(space_of(*small, beyond_domain=True))) == 16


def test_a_model_without_attention_is_only_replicated() -> None:
    problem = question_of("resnet50", "A100-SXM4-80GB", 8, 256)
    found = list(layouts_of(space_of(*problem)))
    assert {(layout.tp, layout.pp, layout.cp, layout.dp) for layout in found} == {(1, 1, 1, 8)}
    assert {layout.micro_batch_size for layout in found} == {1, 2, 4, 8, 16, 32}


def test_fixed_fields_hold_for_all(small: Question) -> None:
    fixed = parse_fixed(
        [
            "tp=2,4",
            "zero_stage=1",
            "schedule=interleaved",
            "micro-batch=2",
            "prefetch=0",
            "sequence_parallel=no",
        ]
    )
    found = [layout for layout in layouts_of(space_of(*small, fixed=fixed)) if layout.pp > 1]
    assert {layout.tp for layout in found} == {2, 4}
    assert {(each.zero_stage, each.micro_batch_size, each.prefetch) for each in found} == {(1, 2.0, 0)}
    assert {each.schedule for each in found} == {PipelineSchedule.INTERLEAVED}
    assert not any(each.sequence_parallel for each in found)


def test_refusals_are_counted_by_rule(small: Question) -> None:
    refused = Refusals()
    list(space_of(*small).frames(refused))
    [interleaved] = [reason for reason in refused.counts if "groups of pp" in reason]
    assert refused.counts[interleaved] > 50


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("tp", "NAME=VALUE"),
        ("tp=", "NAME=VALUE"),
        ("tp=two", "tp=two"),
        ("schedule=fast", "zero-bubble"),
        ("sequence_parallel=maybe", "maybe"),
        ("stage_layers=4,two", "stage_layers"),
    ],
)
def test_pairs_that_cannot_be_say_the_way_out(pair: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        parse_fixed([pair])
    assert "To fix" in str(caught.value)


def test_lists_are_fixed_as_they_are_typed_elsewhere() -> None:
    fixed = parse_fixed(["stage_layers=7,8x2", "rank_order=tp-cp-pp-dp", "grad_accum=2,4"])
    assert fixed["stage_layers"] == ((7, 8, 8),) and fixed["rank_order"] == (("tp", "cp", "pp", "dp"),)
    assert fixed["num_microbatches"] == (2, 4)


def test_an_unknown_field_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="zero_stage"):
        parse_fixed(["zero_stag=1"])
