"""Small trainings in emulated precision: fp32 is plain training, narrow products are torch's own."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from precision_time.errors import ConfigError
from risk_study.models import BUILDERS
from risk_study.plan import RiskPlan, Training, load_risk_plan
from risk_study.products import Flushes, Products, cast
from risk_study.recipe import Recipe, get_recipe, known_recipes
from risk_study.rounding import Chance
from risk_study.training import train

PLAN = load_risk_plan(str(Path(__file__).with_name("risk.toml")))


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def products_of(recipe: Recipe, *, native: bool = False) -> Products:
    return Products(recipe, lambda _: True, Chance(torch.Generator().manual_seed(0)), native=native)


@cache
def trained(recipe: str, *, model: str = "tiny", group: str = "all") -> Any:
    return trained_by(PLAN, recipe, model=model, group=group)


def trained_by(plan: RiskPlan, recipe: str, *, model: str = "tiny", group: str = "all") -> Any:
    result = train(Training(model=model, recipe=recipe, group=group, seed=0), plan)
    return replace(result, cpu_s=0.0)


def test_fp32_is_plain_training() -> None:
    model = PLAN.model["tiny"]
    task = BUILDERS["regression"](model.sizes, 0, "cpu")
    inner = [(task.parameters[f"linear{i}.weight"], task.parameters[f"linear{i}.bias"]) for i in range(3)]
    optimizer = torch.optim.SGD(task.parameters.values(), lr=0.05, momentum=0.9)

    def loss(x: Any, y: Any) -> Any:
        for weight, bias in inner[:-1]:
            x = torch.relu(x @ weight.t() + bias)
        return torch.nn.functional.mse_loss((x @ inner[-1][0].t() + inner[-1][1])[:, 0], y)

    schedule = [0.5 * (1.0 + torch.cos(torch.tensor(torch.pi * step / 19)).item()) for step in range(19)]
    losses = []
    for step, share in enumerate([1.0, *schedule]):
        optimizer.param_groups[0]["lr"] = 0.05 * share
        optimizer.zero_grad()
        loss(*next(task.training)).backward()
        optimizer.step()
        if step + 1 in {19, 20}:
            losses.append(float(loss(*task.validation[0]).detach()))
    assert trained("fp32").loss == pytest.approx(sum(losses) / 2, rel=1e-5)


@pytest.mark.parametrize("recipe", ["bf16-mixed/autocast", "fp16-mixed/no-loss-scaling"])
def test_emulated_products_are_torchs_own(recipe: str) -> None:
    """Output and both gradients equal those of 16-bit products: sums differ in order, by a last bit."""
    random = torch.Generator().manual_seed(1)
    x, w, g = (torch.randn(size, generator=random) for size in ((48, 32), (16, 32), (48, 16)))
    results = []
    for native in (False, True):
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        out = products_of(get_recipe(recipe), native=native).linear("any", a, b)
        out.backward(g)
        results.append((out.detach(), a.grad, b.grad))
    unit = {"bf16-mixed": 2.0**-8, "fp16-mixed": 2.0**-11}[get_recipe(recipe).precision]
    for emulated, native_result in zip(*results, strict=True):
        assert not torch.equal(emulated, x @ w.t() if emulated.shape == (48, 16) else emulated + 1.0)
        assert float((emulated - native_result).abs().max()) <= 2.0 * unit * float(emulated.abs().max())
        assert float((emulated == native_result).float().mean()) > 0.9


def test_emulated_fp8_products_are_those_of_the_fp8_operator() -> None:
    random = torch.Generator().manual_seed(1)
    x, w = (torch.randn(size, generator=random) for size in ((48, 32), (16, 32)))
    emulated = products_of(get_recipe("fp8-mixed/current")).linear("any", x, w)
    scales = [448.0 / tensor.abs().amax() for tensor in (x, w)]
    x8, w8 = ((tensor * scale).to(torch.float8_e4m3fn) for tensor, scale in zip((x, w), scales, strict=True))
    factors = {"scale_a": 1.0 / scales[0], "scale_b": 1.0 / scales[1]}
    operator = torch._scaled_mm(x8, w8.t(), **factors, out_dtype=torch.bfloat16).float()
    assert float((emulated - operator).abs().max()) <= 2.0**-8 * float(emulated.abs().max())
    assert float((emulated == operator).float().mean()) > 0.9
    assert float((emulated - x @ w.t()).abs().max()) > 10.0 * float((emulated - operator).abs().max())


@pytest.mark.parametrize("name", ["bf16-mixed/autocast", "fp8-mixed/current"])
def test_a_native_training_ends_near_the_emulated_one(name: str) -> None:
    training = Training(model="words", recipe=name, group="all", seed=0)
    native = train(training, PLAN, native=True)
    assert native.loss == pytest.approx(trained(name, model="words").loss, rel=0.01)
    assert native.loss != trained("fp32", model="words").loss


def test_native_fp8_is_near_the_emulation() -> None:
    random = torch.Generator().manual_seed(1)
    x, w = (torch.randn(size, generator=random) for size in ((48, 32), (16, 32)))
    emulated, native = (
        products_of(get_recipe("fp8-mixed/current"), native=native).linear("any", x, w)
        for native in (False, True)
    )
    exact = x @ w.t()
    assert float((emulated - native).norm()) < float((emulated - exact).norm())


def test_recipes_without_an_operator_do_not_run_natively() -> None:
    with pytest.raises(ConfigError, match="cannot run natively.*To fix"):
        products_of(get_recipe("fp8-mixed/delayed"), native=True)


def test_gradients_pass_the_rounding_of_forward_unchanged() -> None:
    x = torch.tensor([0.1, 0.3, 1e-12, 900.0], requires_grad=True)
    g = torch.tensor([0.1, 1.0, -3.0, 7.0])
    cast(x, torch.round, None).backward(g)
    assert torch.equal(x.grad, g)


@pytest.mark.parametrize("name", [name for name in known_recipes() if name != "fp32"])
def test_every_recipe_trains_and_changes_the_loss(name: str) -> None:
    result = trained(name)
    assert result.loss != trained("fp32").loss
    assert not result.diverged


@pytest.mark.parametrize("name", ["fp8-mixed/delayed", "nvfp4-mixed/no-hadamard", "bf16/stochastic"])
def test_the_same_seed_gives_the_same_loss(name: str) -> None:
    assert trained(name) == trained.__wrapped__(name)


def test_small_gradients_need_loss_scaling_in_fp16() -> None:
    without = trained("fp16-mixed/no-loss-scaling", model="words")
    scaled = trained("fp16-mixed/loss-scaling", model="words")
    assert without.underflow_share > 10.0 * scaled.underflow_share
    assert trained("bf16-mixed/autocast", model="words").underflow_share == 0.0


def test_overflow_halves_the_loss_scale_and_leaves_the_step_out() -> None:
    wide = PLAN.model_copy(update={"loss_scale": 2.0**30})
    result = trained_by(wide, "fp16-mixed/loss-scaling")
    assert 0 < result.overflow_steps < result.steps
    assert not result.diverged


def test_a_training_that_overflows_without_scaling_diverges() -> None:
    huge = PLAN.model["tiny"].model_copy(update={"learning_rate": 1e6})
    result = trained_by(PLAN.model_copy(update={"model": {"tiny": huge}}), "fp16-mixed/no-loss-scaling")
    assert result.diverged
    assert result.overflow_steps > 0


def test_all_layers_are_a_group_and_what_it_leaves() -> None:
    model = PLAN.model["tiny"]
    for layer in ("linear0", "linear1", "linear2"):
        inside = [group for group in model.sum_of if model.rounds(group, layer)]
        assert len(inside) == 1
        assert not model.rounds(f"all-but-{inside[0]}", layer)
        assert model.rounds("all", layer)
    losses = {group: trained("nvfp4-mixed/no-hadamard", group=group).loss for group in ("all", "head")}
    assert len({*losses.values(), trained("fp32").loss}) == 3


@pytest.mark.parametrize("name", [name for name in BUILDERS if name not in {"decoder", "regression", "gnn"}])
def test_groups_of_the_shipped_plan_hold_every_layer_once(name: str) -> None:
    plan = load_risk_plan("full")
    (model,) = [model for model in plan.model.values() if model.kind == name]
    seen: set[str] = set()
    recipe = get_recipe("bf16-mixed/autocast")
    products = Products(recipe, lambda layer: bool(seen.add(layer)) or True, None, flushes=Flushes(1))
    task = BUILDERS[name](model.sizes, 0, "cpu")
    task.loss(task.parameters, products, next(task.training)).backward()
    assert all(tensor.grad is not None for tensor in task.parameters.values())
    for layer in seen:
        assert sum(model.rounds(group, layer) for group in model.sum_of) == 1, layer
