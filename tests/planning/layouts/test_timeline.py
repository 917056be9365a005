"""Pictures of a step: bars that do not overlap, add up, and come out as valid files."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from precision_time.cost.job import Jobs
from precision_time.cost.search import under
from precision_time.errors import ConfigError
from precision_time.learn.artifact import shipped_predictor
from precision_time.parallel.layout import Layout, PipelineSchedule
from precision_time.predict.answer import answer
from precision_time.timeline.pictures import step_page, step_svg, write_picture
from precision_time.timeline.step import Bar, StepTimeline, Stream, step_timeline

from .conftest import Question

LAYOUTS = {
    "replicated": Layout(dp=16, micro_batch_size=2, num_microbatches=2),
    "sharded": Layout(dp=16, zero_stage=3, micro_batch_size=4),
    "tensor": Layout(tp=8, dp=2, sequence_parallel=True, num_microbatches=32, zero_stage=1),
    "1f1b": Layout(tp=2, pp=4, dp=2, sequence_parallel=True, num_microbatches=32),
    "interleaved": Layout(pp=4, dp=4, num_microbatches=16, schedule=PipelineSchedule.INTERLEAVED, vpp=4),
    "zero-bubble": Layout(pp=4, dp=4, num_microbatches=16, schedule=PipelineSchedule.ZERO_BUBBLE),
    "many": Layout(pp=16, num_microbatches=64),
}


@pytest.fixture(scope="module", params=LAYOUTS)
def step(request: pytest.FixtureRequest, small: Question) -> StepTimeline:
    job = under(small.job, LAYOUTS[request.param])
    return step_timeline(job, answer(Jobs.of([job]), shipped_predictor())[0])


def shown(bars: tuple[Bar, ...]) -> list[Bar]:
    return [bar for bar in bars if bar.stream is not Stream.OVERLAPPED]


def test_a_device_is_covered_from_start_to_end(step: StepTimeline) -> None:
    bars = shown(step.device)
    assert bars[0].start_s == 0.0
    for before, after in pairwise(bars):
        assert after.start_s == pytest.approx(before.end_s, abs=1e-9 * step.step_time_s)
    assert bars[-1].end_s == pytest.approx(step.step_time_s)
    assert sum(bar.seconds for bar in bars) == pytest.approx(step.step_time_s)


def test_a_device_spends_what_the_terms_say(step: StepTimeline) -> None:
    spent: dict[str, float] = defaultdict(float)
    for bar in shown(step.device):
        spent[bar.kind] += bar.seconds
    terms = step.prediction.terms
    for name in ("tensor_exposed_s", "data_exposed_s", "optimizer_s", "pipeline_exposed_s"):
        assert spent[name.removesuffix("_s")] == pytest.approx(terms.get(name, 0.0))
    assert spent["bubble"] == pytest.approx(terms.get("pipeline_bubble_s", 0.0))
    assert spent["forward"] > 0.0
    assert spent["backward"] + spent["weight"] > spent["forward"]


def test_every_stage_lasts_the_step(step: StepTimeline) -> None:
    stages: dict[int, list[Bar]] = defaultdict(list)
    for bar in step.pipeline:
        stages[bar.stage].append(bar)
    assert sorted(stages) == list(range(step.layout.pp))
    for bars in stages.values():
        assert sum(bar.seconds for bar in bars) == pytest.approx(step.step_time_s)
        forwards = {bar.name for bar in bars if bar.kind == "forward"}
        assert len(forwards) == step.layout.num_microbatches * step.layout.vpp


def test_no_stage_starts_a_micro_batch_before_the_one_ahead_of_it_ends(step: StepTimeline) -> None:
    ends = {bar.stage: bar.end_s for bar in step.pipeline if bar.name == "forward 0"}
    starts = {bar.stage: bar.start_s for bar in step.pipeline if bar.name == "forward 0"}
    for stage in range(1, step.layout.pp):
        assert starts[stage] >= ends[stage - 1] - 1e-9


def test_overlapped_communication_lies_under_kernels(step: StepTimeline) -> None:
    kernels = [bar for bar in step.device if bar.kind in ("forward", "backward", "weight")]
    for bar in step.device:
        if bar.stream is Stream.OVERLAPPED:
            assert any(k.start_s - 1e-9 <= bar.start_s and bar.end_s <= k.end_s + 1e-9 for k in kernels)


def test_the_svg_parses_and_stays_inside(step: StepTimeline) -> None:
    root = ET.fromstring(step_svg(step))
    width = float(root.get("width", "0"))
    rectangles = root.findall("{http://www.w3.org/2000/svg}rect")
    assert len(rectangles) > 5
    for each in rectangles:
        assert float(each.get("x", "0")) + float(each.get("width", "0")) <= width
    labels = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert "compute" in labels
    stages = {f"stage {stage}" for stage in range(step.layout.pp)} if step.layout.pp > 1 else set()
    assert stages <= labels


def test_the_page_holds_picture_and_terms(step: StepTimeline) -> None:
    page = step_page(step)
    assert page.count("<svg") == page.count("</svg>") == 1
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    for name in (name for name, seconds in step.prediction.terms.items() if seconds):
        assert name.removesuffix("_s").removesuffix("_exposed").replace("_", " ") in page


def test_files_that_are_no_pictures_are_refused(step: StepTimeline, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="step.png"):
        write_picture(step, tmp_path / "step.png")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_picture(step, tmp_path / "none" / "step.svg")
