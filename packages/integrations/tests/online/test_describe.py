"""What a live trainer is, as a request."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pytest
import torch

from precision_time import predict_time
from precision_time_integrations.online.describe import Processes, processes, request_of

nn, functional = torch.nn, torch.nn.functional


def network() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Dropout(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    )


IMAGES = torch.zeros(4, 3, 16, 16), torch.zeros(4, dtype=torch.long)
ELSEWHERE = {"device": "A100-SXM4-80GB"}
"""Nothing is measured for a device of the catalog."""


def test_module_batch_and_optimizer_become_a_request_that_can_be_priced() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found = request_of(
        model, batch=IMAGES, loss=functional.cross_entropy, optimizer=optimizer, steps=50, grad_accum=2,
        **ELSEWHERE,
    )  # fmt: skip
    assert found.request is not None and found.reasons == ()
    given = found.request.given()
    assert (given["batch_size"], given["optimizer"], given["precision"]) == (4, "momentum-sgd", "fp32")
    graph = given["model"]
    assert graph.params == sum(p.numel() for p in model.parameters())
    assert "nll_loss_forward" in {node.op for node in graph.nodes}
    assert "fused_optimizer" in given and not given["fused_optimizer"]
    answer = predict_time(found.request)
    assert answer.global_batch_size == 8 and answer.total_steps == 50 and answer.step_time_s > 0.0


def test_describing_changes_nothing_of_the_run() -> None:
    model = network()
    before = pickle.dumps(model.state_dict())
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    found = request_of(model, batch=IMAGES, loss=functional.cross_entropy)  # on this processor: measures it
    assert torch.equal(torch.rand(3), expected)
    assert found.request is not None and found.request.device.startswith("CPU-")
    assert pickle.dumps(model.state_dict()) == before
    assert model.training and not model._forward_pre_hooks and all(p.grad is None for p in model.parameters())
    assert predict_time(found.request).step_time_s > 0.0


def test_types_formats_and_frozen_parts_are_read_off_the_parameters() -> None:
    model = network().to(torch.bfloat16).to(memory_format=torch.channels_last)
    model[0].requires_grad_(False)
    found = request_of(model, batch=IMAGES, **ELSEWHERE).request
    assert found is not None
    assert found.precision == "bf16" and found.channels_last is True
    assert found.model.params - found.model.trainable_params == model[0].weight.numel() + 8


def test_what_could_not_be_read_is_listed() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, inputs: Any) -> Any:
            return self.layer(inputs) * inputs.sum().item()

    class Sophia(torch.optim.SGD):
        pass

    model = Reads()
    found = request_of(
        model, batch=torch.zeros(2, 4), optimizer=Sophia(model.parameters(), lr=0.1), **ELSEWHERE
    )
    assert found.request is None
    optimizer, captured = found.reasons
    assert "'Sophia' is not priced" in optimizer
    assert "Reads could not be captured" in captured and ".item()" in captured


def test_capture_that_takes_too_long_is_given_up() -> None:
    deep = nn.Sequential(*(nn.Linear(8, 8) for _ in range(200)))
    found = request_of(deep, batch=torch.zeros(2, 8), limit_s=0.0, **ELSEWHERE)
    assert found.request is None and "took longer than 0 s" in found.reasons[0]


def test_wrappers_are_seen_through() -> None:
    model = network()
    compiled = request_of(torch.compile(model), batch=IMAGES, **ELSEWHERE).request
    parallel = request_of(nn.DataParallel(model), batch=IMAGES, **ELSEWHERE).request
    assert compiled is not None and compiled.compiler == "inductor"
    assert parallel is not None and parallel.compiler is None
    assert compiled.model.params == parallel.model.params == sum(p.numel() for p in model.parameters())


def test_mappings_are_taken_by_the_names_of_the_forward_pass() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(50, 8), nn.Linear(8, 50)

        def forward(self, ids: Any, scale: Any = None) -> Any:
            return self.head(self.words(ids))

    batch = {"ids": torch.zeros(6, 12, dtype=torch.long), "epoch": 3, "note": ["a"] * 6}
    found = request_of(Named(), batch=batch, **ELSEWHERE)
    assert found.request is not None and found.reasons == ()
    assert found.request.batch_size == 6


def test_without_a_model_or_a_device_there_is_no_request() -> None:
    assert request_of(None).request is None
    assert "no parameters" in request_of(nn.ReLU()).reasons[0]
    named = request_of("resnet50", batch_size=64, precision="bf16-mixed", **ELSEWHERE).request
    assert named is not None and predict_time(named).model == "resnet50"


def test_what_is_said_comes_before_what_is_read() -> None:
    said = {"gpus": 16, "framework": "jax", "precision": "bf16-mixed", "batch_size": 32}
    found = request_of(network(), batch=IMAGES, **said, **ELSEWHERE)
    assert found.request is not None and found.reasons == ()
    given = found.request.given()
    assert {name: given[name] for name in said} == said
    assert request_of(network(), batch=IMAGES, gpus=None, devices=4, **ELSEWHERE).request.gpus == 4  # type: ignore[union-attr]


def test_processes_are_those_of_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "16", "RANK": "3", "LOCAL_WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(name, value)
    assert processes() == Processes(size=16, rank=3, nodes=2)
    found = request_of(network(), batch=IMAGES, **ELSEWHERE).request
    assert found is not None and (found.gpus, found.nodes) == (16, 2)
    monkeypatch.setenv("WORLD_SIZE", "many")
    monkeypatch.delitem(sys.modules, "torch")
    assert processes().size == 1
