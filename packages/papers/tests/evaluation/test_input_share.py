"""What reading images adds: trials are paired, and the stored campaign says what its samples are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from papers_tables.input_share import FILE, FROM_DISK, IN_MEMORY, input_sections, pairs_of
from precision_time_papers.campaign.result import TrialResult, read_results_csv

Make = Callable[..., TrialResult]


def trial(make: Make, dataset: str, **changes: Any) -> TrialResult:
    sizes = {"side": 32.0, "classes": 10.0}
    return make(model="torchvision/resnet18", sizes=sizes, dataset=dataset, batch_per_worker=16, **changes)


def test_trials_are_paired_by_network_shape_and_batch(result_of: Make) -> None:
    results = [
        trial(result_of, IN_MEMORY, step_time_s=0.1),
        trial(result_of, FROM_DISK, step_time_s=0.12, input_s=0.03),
        trial(result_of, FROM_DISK, step_time_s=0.12, input_s=0.03, repeat=1),
    ]
    (pair,) = pairs_of(results)
    assert pair.network == "resnet18"
    assert pair.longer == pytest.approx(1.2)
    assert pair.input_share == pytest.approx(0.25)
    assert pairs_of(results[1:]) == ()


def test_the_stored_campaign_has_both_of_every_pair() -> None:
    results = read_results_csv(FILE)
    pairs = pairs_of(results)
    assert {pair.side for pair in pairs} == {32, 64}
    assert len(pairs) == len({(each.model, each.batch_per_worker, str(each.sizes)) for each in results}) >= 12
    for each in results:
        if each.dataset == FROM_DISK and each.status == "ok":
            assert each.data_origin == "images from disk, generated, no CIFAR"
            assert each.input_s is not None and each.step_time_s is not None
            assert 0.0 < each.input_s < each.step_time_s
    (section,) = input_sections()
    assert "no CIFAR" in section.headline


def test_without_the_campaign_there_is_no_section(tmp_path: Path) -> None:
    assert input_sections(tmp_path / "none.csv") == ()
