"""A processor as a device: what limits it, its name and price, and rows of campaigns that ran on it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from precision_time.cli.main import app
from precision_time.corpus.own import read_own_steps
from precision_time.errors import ConfigError
from precision_time.hardware.custom import BESIDE, load_custom
from precision_time.precision.catalog import get_policy
from precision_time.precision.support import check_support, natural_precision, supported_precisions
from precision_time.predict.api import predict_time
from precision_time_integrations.measure.describe import add_device
from precision_time_integrations.measure.processor import ProcessorFigures, available_bytes, cpu_quota
from precision_time_papers.campaign.result import read_results_csv
from precision_time_papers.campaign.store import CampaignStore
from precision_time_papers.predictddl.trainer import read_runs, rows_by_type, trainable

STORED = Path(__file__).resolve().parents[3] / "papers" / "studies" / "campaigns" / "own-ray-cpu.csv"
NAME = "CPU-AMD-EPYC-avx512-1-core"
RATES = {"fp32": 102e9, "bf16": 222e9, "fp16": 4.1e9, "fp64": 52e9, "int8": 439e9}
"""What `measure --cpu` found on the machine of the stored campaign (FLOP/s)."""


def figures(name: str = NAME, **rates: float) -> ProcessorFigures:
    return ProcessorFigures(
        name=name,
        instructions="avx512",
        threads=1,
        cores=1,
        flops_per_s={**RATES, **rates},
        memory_bytes_per_s=21e9,
        operator_s=9.9e-6,
        memory_bytes=25e9,
        cache_bytes=2**25,
        clock_hz=2.6e9,
        software="torch 2.13.0+cpu, 1 thread, avx512",
    )


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    path = tmp_path / "cpu.toml"
    add_device(path, NAME, figures().entry())
    return path


def test_the_least_quota_of_all_groups_counts(tmp_path: Path) -> None:
    own = tmp_path / "cgroup"
    own.write_text("3:cpu,cpuacct:/jobs/one\n2:memory:/jobs\n0::/new/group\n", encoding="ascii")
    old, new = tmp_path / "cpu" / "jobs", tmp_path / "new"
    for folder, file, text in (
        (old / "one", "cpu.cfs_quota_us", "-1"),
        (old / "one", "cpu.cfs_period_us", "100000"),
        (old, "cpu.cfs_quota_us", "150000"),
        (old, "cpu.cfs_period_us", "100000"),
        (new / "group", "cpu.max", "max 100000"),
        (tmp_path / "memory" / "jobs", "memory.limit_in_bytes", "1000000"),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, encoding="ascii")
    assert cpu_quota(tmp_path, own) == 1.5
    (new / "cpu.max").write_text("25000 100000", encoding="ascii")
    assert cpu_quota(tmp_path, own) == 0.25
    assert cpu_quota(tmp_path / "none", own) is None
    assert available_bytes(tmp_path, own) == 1e6


def test_a_type_without_units_is_said_to_be_emulated_and_priced_at_its_own_rate(devices: Path) -> None:
    assert figures().emulated == pytest.approx({"fp16": 4.1 / 102})
    own = load_custom(devices).find_device(NAME)
    assert own is not None
    assert natural_precision(own) == "bf16-mixed"
    assert "fp16-mixed" not in supported_precisions(own)
    assert "0.04 of the fp32 rate" in " ".join(check_support(get_policy("fp16-mixed"), own))
    asked = {"device": NAME, "custom": devices, "batch_size": 16}
    by_type = {
        name: predict_time("resnet18", precision=name, **asked).step_time_s
        for name in ("fp32", "bf16-mixed", "fp16-mixed")
    }
    assert by_type["bf16-mixed"] < by_type["fp32"] < by_type["fp16-mixed"] / 5


def test_where_bf16_is_emulated_training_is_fp32(tmp_path: Path) -> None:
    add_device(tmp_path / "old.toml", "old", figures("old", bf16=4.3e9).entry())
    own = load_custom(tmp_path / "old.toml").find_device("old")
    assert own is not None
    assert natural_precision(own) == "fp32"


def test_a_file_of_devices_keeps_what_it_holds(devices: Path) -> None:
    add_device(devices, "other", figures("other").entry())
    assert {*load_custom(devices).devices} == {"cpuamdepycavx5121core", "other"}
    devices.write_text("no toml", encoding="utf-8")
    with pytest.raises(ConfigError, match="no TOML file"):
        add_device(devices, "other", figures().entry())


def test_the_rows_of_a_campaign_are_evaluated_calibrated_and_learned_from(
    tmp_path: Path, devices: Path
) -> None:
    store, rows = tmp_path / "points.sqlite", tmp_path / "rows.csv"
    trials = [each for each in read_results_csv(STORED) if each.model != "mlp"]
    with CampaignStore(store) as opened:
        for result in trials[::8]:
            opened.add(result)
    words = ("papers", "campaign", "export", str(store), "--corpus", "--out", str(rows))
    left = CliRunner().invoke(app, words)
    assert "CPU-AMD-EPYC-1-core, which no catalog has" in left.stderr
    CliRunner().invoke(app, (*words, "--device-file", str(devices)))
    assert load_custom(rows.with_suffix(BESIDE)).find_device(NAME)
    steps = read_own_steps(rows)
    assert len(steps) == len(trials[::8])
    priced = [step for step in steps if step.job is not None]
    assert {step.job.cluster.device.name for step in priced if step.job} == {NAME}
    assert {step.row.text("device") for step in steps if step.job is None} <= {"CPU-AMD-EPYC-0.5-cores"}
    scored = CliRunner().invoke(app, ("evaluate", str(rows), "--json"))
    assert scored.exit_code == 0, scored.output
    saved = CliRunner().invoke(app, ("calibrate", str(rows), "--out", str(tmp_path / "c.json")))
    assert saved.exit_code == 0, saved.output
    runs, rejected = read_runs({"rows.csv": rows}, alone=True)
    assert len(runs.measurements) == len(runs.own) == len(priced)
    assert sum(rejected.values()) == len(steps) - len(priced)
    by_type = rows_by_type(runs.measurements, runs.own)
    assert sum(len(found.measurements) for found in by_type.values()) == len(priced)
    with pytest.raises(ConfigError, match="it takes 60 data-parallel runs"):
        trainable(runs, ())
