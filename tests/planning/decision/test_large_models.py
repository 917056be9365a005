"""Large models, whose rows share layouts: every size of model, and every device of the catalog alone."""

import numpy as np
import pytest

from precision_time.errors import ConfigError
from precision_time.hardware.catalog import known_device_names
from precision_time.planning.decision.api import plan

FEW = {"tokens": 1e9, "max_gpus": 16, "workers": 1}
"""One host, several, and single hosts where no network is known: their requests differ in fields."""


@pytest.mark.parametrize(
    "model", ["pythia-70m", "pythia-1.4b", "llama3-8b", "llama2-13b", "mixtral-8x7b", "llama3-70b"]
)
def test_a_model_of_any_size_is_planned_with_an_adapter_on_few_devices(model):
    found = plan(model, adapter="qlora", dataset="alpaca", epochs=1, max_gpus=2, workers=1)
    assert found.best is not None and found.counts.asked > 0


def _planned_alone(device):
    try:
        found = plan("llama3-8b", adapter="lora", devices=device, **FEW)
    except ConfigError as refused:  # one that it does not fit says so
        assert "fits in the memory of none" in str(refused)
        return
    columns = found.columns()
    assert {*columns["device"]} == {device}
    assert found.counts.asked == found.counts.timed + found.counts.unfit + found.counts.refused
    assert np.isfinite(columns["time_s"]).all()


def test_a_length_of_any_size_is_written_out():
    found = plan("gpt2", devices="H100-SXM5-80GB", gpus=8, tokens=1e11, workers=1)
    assert "100,000,000,000 tokens" in str(found)


@pytest.mark.parametrize("device", ["H200-SXM-141GB", "B200-SXM-180GB", "L40S"])
def test_a_device_whose_clouds_join_it_differently_is_planned_alone(device):
    _planned_alone(device)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", known_device_names())
def test_every_device_is_planned_alone(device):
    _planned_alone(device)
