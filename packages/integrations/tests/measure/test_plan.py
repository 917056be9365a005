"""Plans: what they ask for, and what the filters leave of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_time.errors import ConfigError, UnknownNameError
from precision_time.workload.resolve import load_workload
from precision_time_integrations.measure.plan import PLANS, MeasurePlan, load_plan, select
from precision_time_integrations.measure.trial import KernelTrial, StepTrial


@pytest.mark.parametrize("name", PLANS)
def test_trials_of_a_shipped_plan_are_all_different(name: str) -> None:
    trials = select(load_plan(name))
    assert len({trial.key for trial in trials}) == len(trials) > 50


@pytest.mark.parametrize("name", PLANS)
def test_trials_of_low_rank_come_first(name: str) -> None:
    ranks = [trial.rank for trial in select(load_plan(name))]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("name", PLANS)
def test_every_model_of_a_shipped_plan_is_in_the_catalogue(name: str) -> None:
    for spec in load_plan(name).specs.values():
        work = load_workload(spec.name, seq_len=spec.seq_len, sizes=dict(spec.sizes) or None)
        assert work.graph.params > 1e5
        if work.graph.seq_len is not None:
            assert work.graph.seq_len == spec.seq_len


def test_the_gpu_plan_has_every_precision_and_phase() -> None:
    plan = load_plan("cuda")
    assert {trial.precision for trial in plan.steps} == {
        "fp32", "tf32", "fp16", "bf16", "fp16-mixed", "bf16-mixed", "fp8-mixed",
    }  # fmt: skip
    assert {trial.dtype for trial in plan.ops} == {"fp32", "tf32", "fp16", "bf16", "fp8"}
    assert {trial.phase for trial in plan.ops} == {"fwd", "bwd", "step"}
    assert any(trial.compiled for trial in plan.steps)


def test_variants_multiply_the_shapes(tiny: MeasurePlan) -> None:
    shapes = [trial.shape for trial in tiny.ops if trial.op == "optimizer"]
    assert len(shapes) == 2 * 3
    assert {(shape["optimizer"], shape["impl"]) for shape in shapes} == {
        (name, impl) for name in ("sgd", "adamw") for impl in ("fused", "foreach", "for-loop")
    }


def test_a_precision_takes_the_operators_that_multiply_in_it(tiny: MeasurePlan) -> None:
    trials = select(tiny, precisions=["amp-bf16"])
    assert {p.precision for p in trials if isinstance(p, StepTrial)} == {"bf16-mixed"}
    assert {p.dtype for p in trials if isinstance(p, KernelTrial)} == {"bf16"}


def test_filters_by_what_and_operator(tiny: MeasurePlan) -> None:
    assert {p.op for p in select(tiny, what="ops", ops=["bmm"])} == {"bmm"}
    assert all(isinstance(p, StepTrial) for p in select(tiny, what="steps"))


def test_a_model_outside_the_plan_gets_the_usual_trials(tiny: MeasurePlan) -> None:
    steps = select(tiny, what="steps", models=["resnet26", "lstm-lm"])
    chosen = {(p.model.name, p.model.library, p.precision, p.batch_size) for p in steps}
    assert chosen == {
        ("resnet26", "timm", "fp32", 2),
        ("resnet26", "timm", "bf16-mixed", 2),
        ("lstm-lm", "torch", "fp32", 1),
    }


def test_the_key_tells_configurations_apart(tiny: MeasurePlan) -> None:
    assert tiny.steps[-1].key == "lstm-lm/fp32/b1/sgd/s35"
    assert "own_models:perceptron/fp32/b0/adamw/fused/accum2" in {p.key for p in tiny.steps}


@pytest.mark.parametrize(
    ("filters", "error", "says"),
    [
        ({"what": "everything"}, ConfigError, "ops, steps or all"),
        ({"precisions": ["bf17"]}, UnknownNameError, "bf17"),
        ({"precisions": ["fp64"]}, ConfigError, "cannot be measured"),
        ({"ops": ["linnear"]}, UnknownNameError, "linear"),
        ({"what": "ops", "precisions": ["fp16"]}, ConfigError, "Nothing of the plan"),
    ],
)
def test_filters_that_cannot_be_are_refused(
    tiny: MeasurePlan, filters: dict[str, list[str]], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        select(tiny, **filters)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[seconds", "cannot be read"),
        ("[seconds]\nops = 1.0", "steps"),
        ('[seconds]\nops = 1\nsteps = 1\n[[op]]\nop = "bmm"\ndtypes = ["fp12"]', "fp12"),
        (
            "[seconds]\nops = 1\nsteps = 1\n[[step]]\n"
            'models = ["x"]\nprecisions = ["fp32"]\nbatch_sizes = [1]',
            "'x'",
        ),
        ('[seconds]\nops = 1\nsteps = 1\n[model.x]\nlibary = "timm"', "libary"),
        ("model = 3\n[seconds]\nops = 1\nsteps = 1", "not complete"),
        ("seconds = 3", "not complete"),
    ],
)
def test_a_broken_plan_says_what_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=says):
        load_plan(path)
