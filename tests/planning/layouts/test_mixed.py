"""Devices of several kinds in one job."""

from __future__ import annotations

import pytest

from precision_time.errors import ConfigError
from precision_time.mixed.step import Mixed, kinds_in, predict_mixed
from precision_time.predict.api import predict
from precision_time.request.request import Request

ASKED = {"model": "gpt2", "device": "4xH100+4xA100", "batch_size": 8}


def _mixed(**fields: object) -> Mixed:
    return predict_mixed(Request.of({**ASKED, **fields}))


def test_the_slowest_sets_the_pace_and_the_faster_waits() -> None:
    found = _mixed()
    fast, slow = found.parts
    assert (fast.device, slow.device) == ("H100-SXM5-80GB", "A100-SXM4-80GB")
    assert slow.idle_share == pytest.approx(0.0) and 0.2 < fast.idle_share < 0.8
    assert found.step_time_s == pytest.approx(slow.compute_s + found.network_s)
    alone = predict(Request.of({**ASKED, "device": "8xA100", "nodes": 2}))
    assert found.step_time_s == pytest.approx(alone.step_time_s, rel=0.1)


def test_uneven_batches_give_each_its_share() -> None:
    found = _mixed()
    fast, slow = found.parts
    assert fast.uneven_batch_size > 8 > slow.uneven_batch_size
    assert found.uneven_throughput > found.throughput
    assert found.uneven_throughput > fast.alone_throughput


def test_cost_is_that_of_all_and_a_run_has_its_own() -> None:
    found = _mixed(tokens=1e9)
    assert found.usd_per_hour == pytest.approx(sum(part.usd_per_hour or 0.0 for part in found.parts))
    assert found.run_s == pytest.approx(1e9 / found.throughput, rel=0.01)
    text = found.in_one_line()
    assert "waits" in text and "USD" in text and "The run takes" in text
    assert all("list of" in part.price for part in found.parts)


def test_a_smaller_memory_decides_the_usual_batch() -> None:
    found = predict_mixed(Request.of({"model": "gpt2", "device": "H100+T4", "precision": "fp16-mixed"}))
    assert found.fits and found.parts[0].batch_size == found.parts[1].batch_size <= 16


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tp": 2}, "plain data parallelism alone"),
        ({"zero_stage": 3}, "plain data parallelism alone"),
        ({"gpus": 8}, "hosts of its own"),
        ({"device": "4xH100+4xH100"}, "one kind"),
        ({"batch_size": None, "global_batch_size": 100}, "multiple of 8"),
    ],
)
def test_what_is_no_plain_data_parallelism_is_refused_in_words(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        _mixed(**fields)


def test_words_of_one_device_are_none_of_several() -> None:
    assert kinds_in("CPU-Xeon-Platinum-8480+") == kinds_in("8xH100") == kinds_in("4xH100+4xFoo") == ()
    assert kinds_in("RTX 4090 + 2x RTX 3090") == (("RTX4090", 1), ("RTX3090", 2))
