"""PredictDDL's question (deadline -> number of servers) is the same search: the fewest hosts in time."""

from dataclasses import fields

import numpy as np
import pytest

from precision_time.hardware.catalog import get_cluster
from precision_time_papers.predictddl.contract import Answer
from precision_time_papers.predictddl.requests import PredictDDLRequest
from precision_time_papers.predictddl.servers import servers_needed

HOSTS = (1, 2, 3, 4)


class Service:
    """Answers the n-th number of servers with the time and the bound of a plan."""

    def __init__(self, time_s, sure_s):
        nothing = dict.fromkeys((item.name for item in fields(Answer)), None)
        self.answers = [
            Answer(**{**nothing, "training_time_s": time, "p90_error_percent": 100.0 * (1.0 - time / sure)})
            for time, sure in zip(time_s, sure_s, strict=True)
        ]

    def predict(self, requests):
        assert len(requests) == len(self.answers)
        return self.answers


@pytest.mark.parametrize("hours", [1.0, 3.0, 4.0, 5.0, 6.0, 12.0])
def test_a_plan_and_predictddl_name_the_same_number_of_servers(planned, offered, hours):
    found = planned(
        devices="T4", prices=offered[:1], gpus=[8 * count for count in HOSTS], max_gpus=32,
        global_batch_size=768, deadline=f"{hours}h",
    )  # fmt: skip
    known = found.judged.outcomes
    order = np.argsort(known.instances)
    assert known.instances[order].tolist() == [*HOSTS]
    request = PredictDDLRequest.of({
        "model": "resnet50", "dataset": "imagenet", "batch_size": 96, "deadline": f"{hours}h", "max_servers":
        4, "cluster": get_cluster(device="T4", num_devices=8, node_type="g4dn.metal"),
    })  # fmt: skip
    [kind] = servers_needed(Service(known.time_s[order], known.sure_s[order]), request).kinds
    assert kind.meets is bool(found.choices)
    fewest = min((*known.instances[found.judged.feasible],), default=None)
    nearest = known.instances[np.argmin(known.sure_s)]
    assert kind.found.servers == (fewest if kind.meets else nearest)
