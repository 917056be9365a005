"""What a precision changes per operator class: sums over the rows, against fp32."""

import json

import pytest

from precision_time.errors import ConfigError, UnknownNameError
from precision_time.explain.precision import explain


@pytest.fixture(scope="module", params=["fp16-mixed", "bf16", "tf32", "fp32"])
def page(request):
    return explain("resnet50", precision=request.param, batch_size=64)


def test_rows_add_up_to_the_whole(page):
    for name in ("flops", "bytes", "time_s"):
        assert sum(getattr(row, name) for row in page.rows) == pytest.approx(getattr(page, name)), name
    assert sum(row.fp32_bytes for row in page.rows) == pytest.approx(page.fp32_bytes)
    assert sum(row.fp32_time_s for row in page.rows) == pytest.approx(page.fp32_time_s)


def test_casts_are_rows_of_their_own(page):
    casts = [row for row in page.rows if row.op_class == "cast"]
    assert sum(row.bytes for row in casts) == pytest.approx(page.cast_bytes)
    assert sum(row.launches for row in casts) == pytest.approx(page.casts)
    assert all(row.fp32_time_s == row.flops == 0.0 for row in casts)
    assert bool(casts) is page.precision.endswith("-mixed")


def test_fp32_against_itself_changes_nothing():
    page = explain("resnet50", precision="fp32", batch_size=64)
    assert (page.time_s, page.bytes, page.tensor_core_share) == (page.fp32_time_s, page.fp32_bytes, 0.0)
    assert all(row.time_s == pytest.approx(row.fp32_time_s) for row in page.rows)


def test_half_precision_halves_the_traffic_and_uses_matrix_units():
    half, mixed = (explain("resnet50", precision=name, batch_size=64) for name in ("bf16", "fp16-mixed"))
    assert half.bytes == pytest.approx(half.fp32_bytes / 2, rel=0.05)
    assert half.bytes < mixed.bytes < mixed.fp32_bytes  # autocast keeps casts and some fp32 kernels
    for page in (half, mixed):
        assert page.tensor_core_share > 0.95
        assert page.time_s < page.fp32_time_s
    tf32 = explain("resnet50", precision="tf32", batch_size=64)
    assert tf32.bytes == pytest.approx(tf32.fp32_bytes)
    assert tf32.time_s < tf32.fp32_time_s


def test_a_backward_pass_does_twice_the_work(page):
    work = {
        phase: sum(row.flops for row in page.rows if row.phase == phase) for phase in ("forward", "backward")
    }
    assert work["backward"] / work["forward"] == pytest.approx(2.0, rel=0.05)
    # 4.1 GMACs per image (He et al. 2016, v1.5).
    assert work["forward"] / 64 == pytest.approx(8.2e9, rel=0.02)


def test_work_grows_with_the_batch():
    one, two = (explain("gpt2", precision="bf16", batch_size=batch) for batch in (4, 8))
    assert two.flops == pytest.approx(2 * one.flops)
    assert one.bytes < two.bytes < 2 * one.bytes  # weights are read once
    assert one.time_s < two.time_s


def test_it_turns_into_json(page):
    told = json.loads(json.dumps(page.to_dict()))
    assert told["precision"] == page.precision
    assert len(told["rows"]) == len(page.rows)


def test_what_a_device_cannot_do():
    with pytest.raises(ConfigError, match=r"cannot compute in fp8.*To fix"):
        explain("resnet50", precision="fp8", device="V100-SXM2-16GB")
    assert explain("resnet50", precision="bf16", device="V100-SXM2-16GB").warnings
    with pytest.raises(UnknownNameError, match="Did you mean"):
        explain("resnet50", precision="fp61-mixed")
