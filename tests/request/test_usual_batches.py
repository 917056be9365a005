"""The batch that is assumed where none is said: that of the scripts that such models are trained with."""

from __future__ import annotations

import pytest

from precision_time import predict_time
from precision_time.diagnostics import Severity, texts_of
from precision_time.request.votes import practice_file


@pytest.mark.parametrize(
    ("model", "batch", "whose"),
    [
        ("mask-rcnn-r50-fpn", 2, "Detectron2"),
        ("faster-rcnn-r50-fpn", 2, "Detectron2"),
        ("retinanet-r50-fpn", 2, "Detectron2"),
        ("detr-r50", 2, "DETR"),
        ("yolov8n", 16, "Ultralytics"),
        ("nnunet-3d", 2, "nnU-Net"),
        ("unet3d", 2, "nnU-Net"),
        ("deeplabv3_resnet50", 8, "torchvision"),
        ("dlrm", 8192, "MLPerf"),
        ("deepfm-avazu", 2048, "RecBole"),
        ("cyclegan", 1, "authors"),
        ("whisper-small", 16, "Whisper"),
        ("resnet50", 256, "up to 256."),
        ("bert-base", 256, "up to 256."),
    ],
)
def test_the_usual_batch_of_a_model_is_assumed_where_it_fits(model: str, batch: int, whose: str) -> None:
    answer = predict_time(model, device="H200", precision="bf16-mixed")
    said = " ".join(texts_of(answer.diagnostics, Severity.ASSUMPTION))
    assert answer.batch_size == batch
    assert f"{batch} per device, the largest that fits up to {batch}" in said and whose in said


def test_a_smaller_one_is_assumed_where_it_does_not_fit() -> None:
    assert predict_time("stylegan2", device="GTX1080Ti", precision="fp32").batch_size in (1, 2)


def test_eight_devices_take_the_step_of_mlperf() -> None:
    answer = predict_time("dlrm", device="A100", gpus=8)
    assert answer.batch_size * 8 == 65_536
    small = predict_time("dlrm", device="A100", gpus=8, batch_size=256)
    # The host's work is that of a step: 32 times the samples take less than twice as long.
    assert answer.step_time_s < 2.0 * small.step_time_s


def test_rows_end_in_one_that_fits_any_model() -> None:
    *rows, last = practice_file("batches")["usual"]
    assert last == {"models": ".*", "most": 256}
    for row in rows:
        assert row["most"] & (row["most"] - 1) == 0 and row["source"] and row["scripts"]
        assert ("models" in row) != ("families" in row)
