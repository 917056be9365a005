"""Enforced shares of cores: what is written to control groups of either version, and who may not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.errors import ConfigError
from precision_time_papers.campaign.limits import limit_cpu, pin_cores, release_cpu


@given(share=st.floats(0.002, 64), version=st.sampled_from([1, 2]))
def test_the_quota_is_the_share_of_the_period(
    tmp_path_factory: pytest.TempPathFactory, share: float, version: int
) -> None:
    root = tmp_path_factory.mktemp("cgroup")
    (root / "cpu").mkdir()
    if version == 2:
        (root / "cgroup.controllers").write_text("cpu")
    said = limit_cpu(share, root=root)
    if version == 1:
        [group] = (root / "cpu").iterdir()
        quota, period = (int((group / f"cpu.cfs_{word}_us").read_text()) for word in ("quota", "period"))
    else:
        [group] = root.glob("precision-time-*")
        quota, period = map(int, (group / "cpu.max").read_text().split())
        assert (root / "cgroup.subtree_control").read_text() == "+cpu"
    assert said == f"cgroup-v{version} {quota}/{period} us"
    assert quota / period == pytest.approx(share, rel=1e-3, abs=1e-4)
    assert quota >= 1000  # the kernel's least
    assert period <= 1_000_000
    assert (group / "cgroup.procs").read_text() == str(os.getpid())


def test_who_may_not_is_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="may not make a control group.*To fix: run the nodes of Ray as root"
    ):
        limit_cpu(0.5, root=tmp_path / "none")
    with pytest.raises(ConfigError, match="at least 1000 us.*To fix: at least 0.001 cores"):
        limit_cpu(0.0005, root=tmp_path)
    with pytest.raises(ConfigError, match=r"cannot run on the cores \[999\].*To fix: name cores"):
        pin_cores([999])


def test_groups_of_ended_processes_are_removed(tmp_path: Path) -> None:
    # Beyond the largest process number of Linux, 2^22; and of a worker that is about to join its group.
    living = f"precision-time-{os.getpid()}"
    for name in (f"precision-time-{2**22 + 1}", living, "other"):
        (tmp_path / "cpu" / name).mkdir(parents=True)
    release_cpu(root=tmp_path)
    assert {each.name for each in (tmp_path / "cpu").iterdir()} == {living, "other"}
