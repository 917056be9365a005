"""How many servers meet a deadline: the answer does, one fewer does not, more time never needs more."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.errors import ConfigError
from precision_time.hardware.inventory import ClusterResources, NodeResources
from precision_time.units import duration_s
from precision_time_integrations.inventory.mapping import resources
from precision_time_papers.predictddl.contract import Answer, Refusal
from precision_time_papers.predictddl.controller import PredictDDL, answer_batch
from precision_time_papers.predictddl.registry import Registry
from precision_time_papers.predictddl.requests import PredictDDLRequest, read_request
from precision_time_papers.predictddl.servers import ServersNeeded, servers_needed


class Times:
    """Stands for the service: answers the n-th request with the n-th time."""

    def __init__(self, answer: Answer, times_s: list[float], error_percent: float) -> None:
        self.answer, self.times_s, self.error_percent = answer, times_s, error_percent

    def predict(self, requests: list[PredictDDLRequest]) -> list[Answer]:
        return [
            replace(self.answer, training_time_s=seconds, p90_error_percent=self.error_percent)
            for _, seconds in zip(requests, self.times_s, strict=True)
        ]


def request_of(cluster: ClusterResources, **changes: Any) -> PredictDDLRequest:
    fields = {"model": "resnet18", "batch_size": 64, "dataset": "cifar10", "cluster": cluster}
    return PredictDDLRequest.of({**fields, **changes})


@pytest.fixture(scope="module")
def lab() -> ClusterResources:
    """Four servers of one kind and two of another."""
    nodes = [NodeResources(name=f"v{i}", reported_device="V100-SXM2-16GB", num_devices=4) for i in range(4)]
    nodes += [NodeResources(name=f"a{i}", reported_device="A100-SXM4-40GB", num_devices=8) for i in range(2)]
    return resources(nodes, source="a test")


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory, trained: Any, cluster: ClusterResources) -> Answer:
    registry = Registry(own=tmp_path_factory.mktemp("r"))
    registry.save(trained)
    return PredictDDL(registry=registry, measurements=()).predict(request_of(cluster))


@settings(max_examples=25, deadline=None)
@given(
    times_s=st.lists(st.floats(1.0, 1e6), min_size=2, max_size=6),
    deadlines_s=st.tuples(st.floats(0.5, 2e6), st.floats(0.5, 2e6)),
    error_percent=st.floats(0.0, 150.0),
)
def test_the_answer_meets_the_deadline_and_one_fewer_does_not(
    answer: Answer, times_s: list[float], deadlines_s: tuple[float, float], error_percent: float
) -> None:
    node = NodeResources(name="v", reported_device="V100-SXM2-16GB", num_devices=4)
    kind = resources([node], source="a test")
    service: Any = Times(answer, times_s, error_percent)
    found = []
    for deadline_s in sorted(deadlines_s):
        request = request_of(kind, deadline=deadline_s, max_servers=len(times_s))
        (only,) = servers_needed(service, request).kinds
        assert only.found is not None
        bounds = [s / (1.0 - error_percent / 100.0) if error_percent < 100.0 else math.inf for s in times_s]
        place = only.found.servers - 1
        assert only.found.low_s <= times_s[place] <= only.found.high_s == pytest.approx(bounds[place])
        assert only.meets == (min(bounds) <= deadline_s)
        if only.meets:
            assert only.found.high_s <= deadline_s
            assert all(bound > deadline_s for bound in bounds[:place])
        else:
            assert bounds[place] == min(bounds)
        found.append(only)
    shorter, longer = found
    if shorter.meets and shorter.found and longer.found:
        assert longer.meets
        assert longer.found.servers <= shorter.found.servers


def test_every_kind_of_the_inventory_is_answered_with_as_many_as_it_has(
    registry: Registry, lab: ClusterResources
) -> None:
    service = PredictDDL(registry=registry, measurements=())
    needed = servers_needed(service, request_of(lab, deadline="30d", name="lab"))
    tried = {(kind.device, kind.devices_per_server): kind.tried for kind in needed.kinds}
    assert tried == {("V100-SXM2-16GB", 4): 4, ("A100-SXM4-40GB", 8): 2}
    for kind in needed.kinds:
        assert kind.found is not None
        assert kind.answer is not None
        node = next(node for node in lab.nodes if node.device == kind.device)
        alone = replace(lab, nodes=(node,) * kind.found.servers)
        assert service.predict(request_of(alone)).training_time_s == pytest.approx(kind.found.training_time_s)
    with pytest.raises(ConfigError, match="asks for a number of servers"):
        service.predict(request_of(lab, deadline="30d"))


def test_a_line_with_a_deadline_is_answered_by_servers(registry: Registry) -> None:
    body = {
        "model": "resnet18",
        "batch_size": 64,
        "dataset": "cifar10",
        "cluster": {"device": "V100-SXM2-16GB", "devices_per_node": 4},
    }
    service = PredictDDL(registry=registry, measurements=())
    lines = [body, {**body, "deadline": "1s", "max_servers": 3}, {**body, "deadline": "soon"}]
    first, second, third = answer_batch(service, [read_request(line) for line in lines])
    assert isinstance(first, Answer)
    assert isinstance(second, ServersNeeded)
    (kind,) = second.kinds
    assert (kind.tried, kind.meets) == (3, False)
    assert isinstance(third, Refusal)
    assert "To fix: write it like 90s" in third.error


@pytest.mark.parametrize("text", ["soon", "0", "-2h", "2 weeks", "", "inf"])
def test_a_deadline_is_a_duration_above_zero(text: str) -> None:
    with pytest.raises(ConfigError, match="To fix"):
        duration_s("deadline", text)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"deadline": "1h", "max_servers": 2000}, "too many to try"),
        ({}, "no deadline"),
        ({"deadline": "1h", "dataset": "librispeech"}, "No predictor serves"),
    ],
)
def test_what_cannot_be_asked_is_said(
    registry: Registry, lab: ClusterResources, changes: dict[str, Any], said: str
) -> None:
    service = PredictDDL(registry=registry, measurements=())
    with pytest.raises(Exception, match=said) as caught:
        servers_needed(service, request_of(lab, **changes))
    assert "To fix" in str(caught.value)
