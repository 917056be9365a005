"""The search: its best are the best of all, its numbers add up, and it says what misses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from precision_time.cost.search import fitting, space_of, under
from precision_time.diagnostics import Diagnostics
from precision_time.errors import ConfigError, LayoutError
from precision_time.executor import OneCopy, process_map
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.priced import predict_step_times
from precision_time.parallel.layout import EQUAL_WITHIN, Layout, Offload, Recompute, simplicity
from precision_time.planning.layouts.advice import why_first
from precision_time.planning.layouts.api import _batch, find_layouts
from precision_time.planning.layouts.pricing import bounds_of, families_of, price_layouts
from precision_time.planning.layouts.result import LayoutSearch, layout_name
from precision_time.planning.layouts.search import search_layouts
from precision_time.predict.remedies import memory_of_job
from precision_time.request.layout import parse_fixed
from precision_time.request.request import Request
from precision_time.workload.resolve import load_workload

from .conftest import Question, needed, question_of

_ALIKE = 0.02
"""One row and many are corrected alike up to thresholds of trees that a last digit crosses."""


def brute_force(problem: Question) -> list[tuple[float, Layout]]:
    """Every candidate with the least recomputation that fits, by predicted time."""
    capacity = problem.job.cluster.device.usable_bytes
    found: list[Layout] = []
    for frame in space_of(*problem).frames():
        for batch in frame.batches:
            modes = (frame.layout(batch, mode) for mode in frame.recompute)
            fits = (layout for layout in modes if needed(problem.job, layout) <= capacity)
            found += [layout for layout in [next(fits, None)] if layout is not None]
    jobs = [under(problem.job, layout) for layout in found]
    times = predict_step_times(jobs, shipped_predictor(), coverage=0.9).step_time_s
    return sorted(zip(times.tolist(), found, strict=True), key=lambda item: item[0])


def test_the_best_are_those_of_brute_force(small: Question) -> None:
    search = search_layouts(*small, top=5)
    expected = brute_force(small)
    assert search.counts.priced < len(expected)
    assert search.counts.priced + search.counts.outrun == len(expected)
    by_layout = {layout: seconds for seconds, layout in expected}
    assert sorted(by_layout[each.layout] for each in search.ranked) == pytest.approx(
        [seconds for seconds, _ in expected[:5]], rel=_ALIKE
    )


def test_all_of_a_replicated_model_are_priced() -> None:
    problem = question_of("resnet50", "V100-SXM2-16GB", 8, 2048)
    search = search_layouts(*problem, top=100, exhaustive=True)
    expected = brute_force(problem)
    assert search.counts.priced == len(search.ranked) == len(expected)
    found = sorted(each.step_time_s for each in search.ranked)  # the simplest of the fastest stands first
    assert found == pytest.approx([s for s, _ in expected], rel=_ALIKE)


@pytest.mark.parametrize(
    ("model", "device", "gpus", "batch"),
    [("gpt2", "A100-SXM4-40GB", 16, 1024), ("bert-large", "H100-SXM-80GB", 64, 256)],
)
def test_the_ranking_is_of_the_times_that_are_shown(model: str, device: str, gpus: int, batch: int) -> None:
    """Of the simplest as well, which may stand before layouts that are as fast."""
    problem = question_of(model, device, gpus, batch)
    few, many = (search_layouts(*problem, top=top).ranked for top in (4, 24))
    assert [each.step_time_s for each in many[1:]] == sorted(each.step_time_s for each in many[1:])
    shown = sorted(each.step_time_s for each in many)
    # The simplest takes the place of the last where it is not among the fastest.
    assert sorted(each.step_time_s for each in few)[:3] == pytest.approx(shown[:3], rel=1e-9)


def test_bounds_lie_below_what_they_bound(small: Question) -> None:
    layouts = [layout for part in fitting(small.job, [*space_of(*small).frames()]) for layout in part.layouts]
    families = families_of(layouts, lambda layout: under(small.job, layout).precision)
    one = OneCopy(small.job)
    bounds = bounds_of(one, families)
    priced = price_layouts(one, bounds.layouts)
    share = bounds.base_s / priced.analytical_s
    assert len(share) == len(layouts) > 200
    assert share.max() <= 1.02
    assert share.mean() > 0.8


def test_ranking_terms_and_memory(small: Question, found: LayoutSearch) -> None:
    assert len(found.ranked) == len(found.jobs) == 8
    for first, second in pairwise(found.ranked[1:]):
        assert first.step_time_s <= second.step_time_s
    assert found.ranked[0].step_time_s <= (1.0 + EQUAL_WITHIN) * found.ranked[1].step_time_s
    for each, job in zip(found.ranked, found.jobs, strict=True):
        prediction = each.prediction
        assert sum(prediction.terms.values()) == pytest.approx(each.step_time_s)
        assert prediction.fits
        assert prediction.memory_bytes_per_device == pytest.approx(sum(memory_of_job(job).values()))
        assert job.layout == each.layout
        assert prediction.global_batch_size == small.batch
        assert prediction.interval.low_s < each.step_time_s < prediction.interval.high_s


def test_every_candidate_has_one_fate(small: Question, found: LayoutSearch) -> None:
    counts = found.counts
    frames = list(space_of(*small).frames())
    assert counts.enumerated == sum(map(len, frames))
    assert counts.enumerated == counts.too_large + counts.recomputing + counts.outrun + counts.priced
    assert min(counts.too_large, counts.recomputing, counts.outrun, counts.priced) > 0


def test_memory_prunes_as_one_by_one(experts: Question) -> None:
    capacity = experts.job.cluster.device.usable_bytes
    kept = 0
    for frame in list(space_of(*experts).frames())[::17]:
        [part] = fitting(experts.job, [frame])
        expected = []
        for batch in frame.batches:
            for mode in frame.recompute:
                layout = frame.layout(batch, mode)
                if needed(experts.job, layout) <= capacity:
                    expected.append(layout)
                    break
        assert list(part.layouts) == expected
        assert len(part.layouts) + part.too_large + part.recomputing == len(frame)
        kept += len(expected)
    assert kept > 0


@pytest.fixture(scope="module")
def tight() -> Question:
    """Eight billion parameters on devices of 40 GB: most layouts recompute."""
    return question_of("llama3-8b", "A100-SXM4-40GB", 8, 32)


def test_no_layer_is_recomputed_that_need_not_be(tight: Question) -> None:
    capacity = tight.job.cluster.device.usable_bytes
    seen = 0
    for frame in space_of(*tight, by_layer=True).frames():
        [part] = fitting(tight.job, [frame])
        assert len(part.layouts) + part.too_large + part.recomputing == len(frame)
        for layout in part.layouts:
            assert needed(tight.job, layout) <= capacity
            layers = layout.recompute_share * frame.layers
            if layout.recompute is not Recompute.FULL or layers == 1 or layout.pp > 1:
                continue
            seen += 1
            less = replace(layout, recompute_layers=(layers - 1) / frame.layers)
            assert needed(tight.job, less) > capacity
    assert seen > 3


def test_recomputing_by_layer_is_never_slower_than_by_model(tight: Question) -> None:
    frames = space_of(*tight).frames()
    whole = [layout for part in fitting(tight.job, [*frames]) for layout in part.layouts]
    jobs = [under(tight.job, layout) for layout in whole]
    times = predict_step_times(jobs, shipped_predictor(), coverage=0.9).step_time_s
    search = search_layouts(*tight, top=3)
    assert min(each.step_time_s for each in search.ranked) <= (1.0 + _ALIKE) * times.min()


def test_host_memory_is_found_where_nothing_else_fits() -> None:
    problem = question_of("llama3-8b", "A100-SXM4-80GB", 1, 16)
    best, *_ = search_layouts(*problem, top=3).ranked
    assert best.layout.offload is not Offload.NONE
    assert best.prediction.fits
    assert best.prediction.terms["offload_s"] > 0.0
    without = search_layouts(*problem, fixed=parse_fixed(["offload=none"]))
    assert not without.ranked
    fixed = search_layouts(*problem, fixed=parse_fixed(["offload=parameters"]), top=1)
    assert fixed.ranked[0].layout.offload is Offload.PARAMETERS


def test_host_memory_is_not_tried_where_nothing_is_short(found: LayoutSearch, small: Question) -> None:
    assert {each.layout.offload for each in found.ranked} == {Offload.NONE}
    assert found.counts.enumerated == sum(map(len, space_of(*small, by_layer=True).frames()))


def test_processes_find_the_same(small: Question, found: LayoutSearch) -> None:
    with process_map(2) as over:
        again = search_layouts(*small, top=8, over=over)
    assert [each.layout for each in again.ranked] == [each.layout for each in found.ranked]
    assert again.counts == found.counts


def test_any_map_will_do(small: Question, found: LayoutSearch) -> None:
    sizes: list[int] = []

    def counting(function: Callable[[Any], Any], chunks: Iterable[Any]) -> Iterable[Any]:
        for chunk in chunks:
            sizes.append(len(chunk))
            yield function(chunk)

    told: list[tuple[str, int, int]] = []
    again = search_layouts(*small, top=8, over=counting, progress=lambda *news: told.append(news))
    assert again.ranked[0].layout == found.ranked[0].layout
    assert len(sizes) > 2
    assert {what for what, _, _ in told} == {"fitting", "pricing"}
    assert all(0 < done <= total for _, done, total in told)


def test_fewer_choices_are_never_faster(small: Question, found: LayoutSearch) -> None:
    fixed = search_layouts(*small, fixed=parse_fixed(["tp=4", "zero_stage=1"]), top=3)
    assert all(each.layout.tp == 4 and each.layout.zero_stage in (0, 1) for each in fixed.ranked)
    assert fixed.ranked[0].step_time_s >= found.ranked[0].step_time_s


def test_the_simplest_of_the_equally_fast_comes_first(found: LayoutSearch) -> None:
    fastest = min(each.step_time_s for each in found.ranked)
    equal = [each for each in found.ranked if each.step_time_s <= (1.0 + EQUAL_WITHIN) * fastest]
    assert len(equal) > 1
    assert simplicity(found.ranked[0].layout) == min(simplicity(each.layout) for each in equal)
    assert found.ranked[0].step_time_s == fastest or "equal within the interval" in found.why


@pytest.mark.parametrize("model", ["gpt2", "llama3-8b"])
def test_what_people_run_stands_beside_the_fastest(model: str) -> None:
    asked: dict[str, Any] = {"model": model, "device": "H100", "gpus": 8, "global_batch_size": 256}
    search = find_layouts(**asked, top=2)
    usual = Request.of(asked).resolve().layout
    if usual == search.ranked[0].layout:
        assert search.why.endswith("`predict` assumes it, too: people run it.")
    else:
        assert f"`predict` assumes {layout_name(usual)}, as people run it: " in search.why
    # Whoever fixes the layout asks for no other.
    assert "people run it" not in find_layouts(**asked, fix=["zero_stage=1"], top=2).why


def test_why_names_the_term_that_decides(found: LayoutSearch) -> None:
    best, other = found.ranked[0], found.ranked[-1]
    gaps = {
        name: other.prediction.terms.get(name, 0.0) - best.prediction.terms.get(name, 0.0)
        for name in {*best.prediction.terms, *other.prediction.terms}
    }
    largest = max(gaps, key=lambda name: gaps[name])
    assert largest.removesuffix("_s").replace("_", " ") in why_first([best, other])
    assert sum(gaps.values()) == pytest.approx(other.step_time_s - best.step_time_s)


def test_what_cannot_fit_says_by_how_much_and_what_would() -> None:
    problem = question_of("llama3.1-405b", "A100-SXM4-40GB", 16, 16)
    search = search_layouts(*problem)
    assert search.ranked == ()
    missed = search.shortfall
    assert missed is not None
    assert missed.needed_bytes > missed.capacity_bytes == problem.job.cluster.device.usable_bytes
    assert sum(missed.memory_terms.values()) == pytest.approx(missed.needed_bytes)
    assert search.counts.too_large == search.counts.enumerated
    assert missed.layout.recompute is Recompute.FULL
    devices = int(missed.advice[0].split()[0])
    larger = question_of("llama3.1-405b", "A100-SXM4-40GB", devices, devices)
    fixed = parse_fixed(["zero_stage=1,3", "recompute=full", "micro_batch=1"])
    frames = space_of(*larger, fixed=fixed, beyond_domain=True).frames()
    assert any(part.layouts for part in fitting(larger.job, [*frames]))


def test_no_layout_at_all_is_an_error_with_the_reason(small: Question) -> None:
    with pytest.raises(LayoutError, match=r"tp\(3\).*does not divide 16 devices"):
        search_layouts(*small, fixed=parse_fixed(["tp=3"]))
    with pytest.raises(ConfigError, match="top=0"):
        search_layouts(*small, top=0)


def test_the_document_is_json(found: LayoutSearch) -> None:
    import json

    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["ranked"][0]["layout"]["dp"] == found.ranked[0].layout.dp
    assert document["counts"]["priced"] == found.counts.priced
    assert "jobs" not in document


def test_the_page_shows_every_layout_and_its_terms(found: LayoutSearch) -> None:
    page = str(found)
    for each in found.ranked:
        assert each.to_dict()["name"] in page
    assert f"{found.counts.enumerated:,} layouts" in page
    assert "gemm" in page


@pytest.mark.parametrize(
    ("gpus", "seq_len", "batch"), [(8, 8192, 512), (512, 8192, 1024), (384, 8192, 1152), (16384, 8192, 2048)]
)
def test_an_assumed_batch_is_shared_evenly(gpus: int, seq_len: int, batch: int) -> None:
    found = Diagnostics()
    assert _batch(None, load_workload("llama3-8b", seq_len=seq_len), gpus, found) == batch
    assert batch % gpus == 0 or gpus % batch == 0
    assert str(batch) in found.items[0].text


def test_hardware_of_ones_own_is_ranked_on_its_reference(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[device.Roomy]\nbase = "A100-SXM4-40GB"\nmemory_gib = 120\n', encoding="utf-8")
    options: dict[str, Any] = {"gpus": 8, "seq_len": 2048, "global_batch_size": 32, "fix": ["tp=1,2", "pp=1"]}
    narrow = find_layouts("llama3.2-3b", device="A100-SXM4-40GB", **options)
    roomy = find_layouts("llama3.2-3b", device="Roomy", custom=file, **options)
    assert roomy.ranked[0].prediction.device == "Roomy"
    assert roomy.counts.too_large < narrow.counts.too_large


def test_alike_devices_are_faster_and_a_fixed_prefetch_holds() -> None:
    options: dict[str, Any] = {
        "device": "A100-SXM4-40GB", "gpus": 16, "seq_len": 2048, "global_batch_size": 32, "top": 2,
        "fix": ["tp=1", "pp=1", "cp=1", "zero_stage=3", "prefetch=0,2"],
    }  # fmt: skip
    usual = find_layouts("llama3.2-1b", **options)
    alike = find_layouts("llama3.2-1b", stragglers=False, **options)
    assert {each.layout.prefetch for each in usual.ranked} <= {0, 2}
    assert f"prefetch{usual.ranked[0].layout.prefetch}" in str(usual)
    assert not any(job.stragglers for job in alike.jobs)
    first, best = usual.ranked[0].prediction, alike.ranked[0].prediction
    assert "straggler_s" in first.terms
    assert "straggler_s" not in best.terms
    assert best.step_time_s < first.step_time_s


@pytest.mark.parametrize("model", ["llama3.2-1b", "llama3.1-405b"])
def test_what_the_device_only_emulates_is_a_warning(model: str) -> None:
    found = find_layouts(
        model, device="V100-SXM2-32GB", gpus=8, precision="bf16-mixed", seq_len=2048, global_batch_size=32,
        top=1, fix=["tp=8"],
    )  # fmt: skip
    [line] = found.warnings
    assert "V100-SXM2-32GB" in line
    assert not any(line in said for said in found.assumptions)
    assert all(line in each.prediction.warnings for each in found.ranked)
    assert str(found).count("Warning: ") >= 1
    assert [item["text"] for item in found.to_dict()["diagnostics"] if item["severity"] == "warning"] == [
        line
    ]


def test_layouts_of_a_fine_tune_are_those_that_its_trainer_has() -> None:
    """Without a stack that is named, a pipeline stood first in a search that said hf-trainer."""
    search = find_layouts("qwen2.5-0.5b", device="H100-SXM5-80GB", gpus=4, method="sft", global_batch_size=16)
    assert search.ranked[0].prediction.stack == "hf-trainer"
    assert {each.layout.pp for each in search.ranked} == {1}
