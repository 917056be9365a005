"""What is asked at the front door is answered as evaluation and training answer the measured run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from front_door import request_arguments
from precision_time.corpus.jobs import job_of, request_of
from precision_time.corpus.measurement import Measurement
from precision_time.errors import UnknownNameError
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.priced import predict_step_times
from precision_time.predict.api import predict
from precision_time.request.request import Request

FOUNDING = [
    *("resnet50", "--device", "A100-SXM4-80GB", "--gpus", "8", "--precision", "fp16-mixed"),
    *("--batch-size", "256", "--stack", "ngc-pytorch", "--channels-last"),
]
"""The founding job: ResNet-50 in NVIDIA's container, which runs it in channels-last format."""
ROW_SAYS = ["--software", "2021.17", "--scope", "with-input", "--optimizer", "sgd"]
"""What more the measured row says that changes the answer."""


@pytest.fixture(scope="module")
def of_rows(sample: list[Measurement]) -> np.ndarray:
    """Step times of the sampled rows, as held-out evaluation gets them."""
    jobs = [job_of(row) for row in sample]
    return predict_step_times(jobs, shipped_predictor(), coverage=0.9).step_time_s


def test_words_of_a_row_give_the_prediction_of_the_row(
    sample: list[Measurement], of_rows: np.ndarray, parsed: Callable[[Sequence[str]], Request]
) -> None:
    assert len({row.source for row in sample}) > 50
    asked = [parsed(request_arguments(request_of(row))) for row in sample]
    times = predict_step_times([each.resolve() for each in asked], shipped_predictor(), coverage=0.9)
    np.testing.assert_allclose(times.step_time_s, of_rows, rtol=1e-9)


@pytest.mark.parametrize("suffix", [".csv", ".toml"])
def test_a_job_file_of_a_row_gives_the_prediction_of_the_row(
    sample: list[Measurement],
    of_rows: np.ndarray,
    filed: Callable[..., list[Request]],
    parsed: Callable[[Sequence[str]], Request],
    suffix: str,
) -> None:
    asked = filed([request_of(row).given() for row in sample], suffix)
    jobs = [request.resolve() for request in asked]
    times = predict_step_times(jobs, shipped_predictor(), coverage=0.9).step_time_s
    np.testing.assert_allclose(times, of_rows, rtol=1e-9)


@pytest.fixture(scope="module")
def founding(corpus: list[Measurement]) -> Measurement:
    """The measured run: 123 ms per step."""
    (row,) = (
        row
        for row in corpus
        if (row.source, row.model, row.device, row.num_devices, row.precision, row.stack.profile)
        == ("nvidia-dle", "resnet50", "A100-SXM4-80GB", 8, "fp16-mixed", "ngc-pytorch")
    )
    assert row.step_time_s == pytest.approx(0.123, rel=0.01)
    return row


def test_the_founding_job_is_within_five_percent(
    founding: Measurement, parsed: Callable[[Sequence[str]], Request]
) -> None:
    full = predict(parsed(request_arguments(request_of(founding)))).step_time_s
    assert full == pytest.approx(founding.step_time_s, rel=0.05)
    assert predict(parsed([*FOUNDING, *ROW_SAYS])).step_time_s == pytest.approx(full, rel=0.05)
    with_year = predict(parsed([*FOUNDING, *ROW_SAYS[:2]])).step_time_s
    # The row's step waits for its input; without saying so it does not, and the interval is wider.
    assert full * 0.84 < with_year < full * 1.01


def test_the_founding_job_names_its_measured_run(
    founding: Measurement, parsed: Callable[[Sequence[str]], Request]
) -> None:
    nearest = predict(parsed([*FOUNDING, *ROW_SAYS])).nearest_measurements[0]
    assert (nearest.source, nearest.measured_step_time_s) == (founding.source, founding.step_time_s)


def test_names_that_trainers_have_for_devices_and_lengths() -> None:
    asked = Request.of({"model": "gpt2", "num_gpus": 8, "max_seq_length": 512})
    assert (asked.gpus, asked.seq_len) == (8, 512)
    assert Request.of({"model": "gpt2", "world_size": 8, "sequence_length": 512}) == asked


@pytest.mark.parametrize("family", ["qwen3", "llama", "gemma"])
def test_a_family_is_no_model(family: str) -> None:
    """transformers would build the default configuration of its type, which nobody trains."""
    with pytest.raises(UnknownNameError) as caught:
        Request(model=family).resolve()
    assert any(name.startswith(f"{family}-") for name in caught.value.nearest)
