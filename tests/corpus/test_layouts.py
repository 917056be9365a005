"""Degrees that a row leaves out: what its device can hold, and what is usual for its model."""

import pytest

from precision_time.corpus.importer import read_measurements
from precision_time.corpus.measurement import Measurement


@pytest.mark.parametrize(
    ("cells", "degrees"),
    [
        ({"model": "llama3.1-8b", "device": "H100-SXM5-80GB", "global_batch": 32}, (4, 2, 1, 1)),
        ({"model": "llama3.1-8b", "device": "MI355X", "global_batch": 32}, (8, 1, 1, 1)),
        ({"model": "llama2-70b-lora", "device": "H200-SXM-141GB", "global_batch": 4}, (4, 1, 1, 2)),
        ({"model": "llama2-70b-lora", "device": "H100-SXM5-80GB", "global_batch": 1}, (1, 4, 1, 2)),
        (
            {"model": "gpt3-175b", "device": "H100-SXM5-80GB", "devices": 32, "global_batch": 1},
            (1, 4, 8, 1),
        ),
    ],
)
def test_degrees_that_are_not_stated(write_csv, minimal, cells, degrees):
    row = {**minimal, "source": "mlperf-v5.1", "task": "lm-pretrain", "precision": "fp8-mixed"}
    row |= {"devices": 8, "grad_accum": 1, "batch_per_device": "", "seq_len": 2048, **cells}
    (found,) = read_measurements(write_csv({key: str(value) for key, value in row.items()}))
    assert isinstance(found, Measurement) and found.layout is not None
    layout = found.layout
    assert (layout.dp, layout.tp, layout.pp, layout.cp) == degrees
