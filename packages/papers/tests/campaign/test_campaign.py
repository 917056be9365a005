"""Campaign files: what they stand for, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from precision_time.errors import ConfigError, UnknownNameError
from precision_time_integrations.measure.steps.catalog import built_in_models
from precision_time_integrations.measure.trial import WorkerGroup
from precision_time_papers.campaign.campaign import campaign_of, load_campaign

SHIPPED = Path(__file__).resolve().parents[2] / "studies" / "campaigns"


def sweep(**changes: Any) -> dict[str, Any]:
    return {"models": "cnn", "data": {"samples": 4096}, **changes}


def test_lists_multiply_and_repeats_come_last() -> None:
    campaign = campaign_of(
        {
            "repeats": 2,
            "sweeps": [
                sweep(models=["cnn", "mlp"], workers=[1, 2], fractions=[0.5, 1], batch_sizes=[16, 32, 64])
            ],
        }
    )
    assert len(campaign.trials) == 2 * 2 * 2 * 2 * 3
    assert [trial.repeat for trial in campaign.trials] == [0] * 24 + [1] * 24
    assert len({trial.identity for trial in campaign.trials}) == 48
    assert {trial.group for trial in campaign.trials} == {
        WorkerGroup(num_workers=1),
        WorkerGroup(num_workers=2),
    }


def test_trials_named_twice_are_measured_once() -> None:
    campaign = campaign_of({"sweeps": [sweep(fractions=[0.5, 1]), sweep(fractions=[1])]})
    assert len(campaign.trials) == 2


@given(
    samples=st.integers(1, 10**6),
    fraction=st.floats(1e-3, 1),
    workers=st.integers(1, 8),
    batch=st.integers(1, 64),
)
def test_an_epoch_is_the_whole_batches_of_a_share(
    samples: int, fraction: float, workers: int, batch: int
) -> None:
    content = {
        "sweeps": [sweep(data={"samples": samples}, fractions=fraction, workers=workers, batch_sizes=batch)]
    }
    try:
        [trial] = campaign_of(content).trials
    except ConfigError as error:
        assert "less than its batch" in str(error)
        assert max(1, round(samples * fraction)) < workers * batch
        return
    steps = trial.steps_per_epoch * workers * batch
    assert steps <= trial.num_samples < steps + workers * batch


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workers": 0}, r"sweeps\.0\.workers\.0.*greater than or equal to 1.*got 0"),
        ({"workers": -1}, "greater than or equal to 1"),
        ({"fractions": 1.5}, "less than or equal to 1"),
        ({"fractions": []}, "at least 1 item"),
        ({"batch_sizes": "many"}, "batch_sizes"),
        ({"precisions": "int3"}, "precisions"),
        ({"speed": 3}, "speed.*not permitted"),
        ({"data": {"samples": 4, "name": "digits"}}, "data.samples is for synthetic"),
        ({"data": {"name": "imagefolder"}}, "ImageFolder None is not a folder"),
        (
            {"data": {"samples": 16}, "workers": 4},
            "cnn/synthetic-16x1/w4c1/b32.*4 samples per worker.*To fix",
        ),
        ({"precisions": "tf32"}, r"cnn/synthetic-4096x1/w1c1/b32/tf32.*without a GPU.*To fix"),
        ({"nodes": 3}, "3 nodes.*To fix"),
        ({"models": [{"name": "cnn", "sizes": {"depth": 3}}]}, "Unknown size of cnn 'depth'"),
        ({"models": [{"name": "resnet18", "sizes": {"depth": 3}}]}, "takes no sizes"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        campaign_of({"sweeps": [sweep(**changes)]})


def test_an_unknown_model_brings_the_nearest_names(monkeypatch: pytest.MonkeyPatch) -> None:
    timm = SimpleNamespace(is_model=lambda name: False, list_models=list)
    monkeypatch.setattr("precision_time.capture.timm_models.import_timm", lambda: timm)
    monkeypatch.setattr("precision_time_integrations.measure.steps.catalog.find_spec", lambda name: timm)
    with pytest.raises(UnknownNameError, match="Did you mean.*transformer"):
        campaign_of({"sweeps": [sweep(models="transformr")]})


def test_campaigns_without_end_are_refused_before_they_are_built() -> None:
    with pytest.raises(ConfigError, match="asks for 1000000000 trials; the most are 100000"):
        campaign_of({"repeats": 1_000_000_000, "sweeps": [sweep()]})
    huge: list[object] = ["x"]
    for _ in range(40):
        huge = [huge, huge]
    with pytest.raises(ConfigError, match="breaks its rules") as caught:
        campaign_of({"sweeps": [sweep(models=huge)]})
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("content", [None, [], 3, "text", {"sweeps": []}, {"version": 2, "sweeps": [{}]}])
def test_other_documents_are_refused(content: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="breaks its rules"):
        campaign_of(content)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("sweeps: [", encoding="utf-8")
    for path in (broken, tmp_path / "none.yaml", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read.*To fix"):
            load_campaign(path)


def test_an_image_folder_is_counted(tmp_path: Path) -> None:
    for index, kind in enumerate(["cat", "dog", "dog"]):
        (tmp_path / kind).mkdir(exist_ok=True)
        (tmp_path / kind / f"{index}.png").write_bytes(b"")
    (tmp_path / "readme.png").write_bytes(b"")
    [trial] = campaign_of(
        {"sweeps": [sweep(data={"name": "imagefolder", "path": str(tmp_path)}, batch_sizes=1)]}
    ).trials
    assert trial.dataset == str(tmp_path)
    assert trial.num_samples == 3


def test_the_shipped_campaign_is_what_it_claims() -> None:
    campaign = load_campaign(SHIPPED / "own-ray-cpu.yaml")
    assert campaign.name == "own-ray-cpu"
    assert len(campaign.trials) >= 150
    assert {trial.model for trial in campaign.trials} == set(built_in_models())
    assert {trial.precision for trial in campaign.trials} == {"fp32", "bf16-mixed"}
    core = [p for p in campaign.trials if p.group.num_workers <= 2 and p.group.num_nodes == 1]
    assert len(core) >= 100
    for model in built_in_models():
        own = [trial for trial in core if trial.model == model and trial.precision == "fp32"]
        assert len({trial.fraction for trial in own}) >= 3
        assert len({trial.batch_per_worker for trial in own}) >= 2
        assert {trial.group.num_workers for trial in own} == {1, 2}
        assert {trial.repeat for trial in own} >= {0, 1}


def test_the_shipped_campaigns_are_yaml_mappings() -> None:
    for path in SHIPPED.glob("*.yaml"):
        assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)
