"""SkyPilot tasks in, estimates out: what is read, what it costs, and what cannot be answered."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from precision_time.cli.main import main
from precision_time.errors import ConfigError
from precision_time.hardware.prices.offer import Market
from precision_time.hardware.prices.offers import offers
from precision_time_integrations import skypilot
from precision_time_integrations.estimate import JobEstimate, estimate_job
from precision_time_integrations.job_files import estimate_file

TORCHRUN = (
    "torchrun --nnodes=$SKYPILOT_NUM_NODES --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE run_mlm.py "
    "--model_name_or_path $MODEL --per_device_train_batch_size 32 --max_steps 20000 --bf16"
)
TASK: dict[str, Any] = {
    "name": "bert",
    "num_nodes": 2,
    "resources": {"accelerators": "A100-80GB:8", "infra": "aws/us-east-1", "use_spot": True},
    "envs": {"MODEL": "bert-large-uncased"},
    "run": TORCHRUN,
}


def sky(**changes: Any) -> JobEstimate:
    [found] = skypilot.estimate([{**TASK, **changes}])
    return found


def test_a_skypilot_task_is_the_run_it_describes() -> None:
    found = sky()
    assert found.reason == ""
    assert found.request is not None
    assert found.request.given() == {
        "model": "bert-large-uncased", "device": "A100-SXM4-80GB", "gpus": 16, "nodes": 2, "batch_size": 32.0,
        "steps": 20000, "precision": "bf16-mixed",
        # What transformers does where nothing is said, as `predict` reads the same command.
        "num_microbatches": 1, "optimizer": "adamw", "recompute": "none", "zero_stage": 0,
        "software": 2026.0, "stack": "transformers",
    }  # fmt: skip
    assert found.run is not None
    same = estimate_job(
        source="", fields=found.fields, options={"cloud": "aws", "region": "us-east-1", "spot": True}
    )
    assert found.duration_s(0.9) == same.duration_s(0.9)
    quantiles = [found.duration_s(share) or 0.0 for share in (0.05, 0.5, 0.95)]
    assert quantiles == sorted(quantiles)
    assert found.run.interval.low_s == pytest.approx(quantiles[0], rel=0.01)


def test_the_cost_is_of_the_hosts_that_are_rented() -> None:
    [offer] = offers(clouds=["aws"], regions=["us-east-1"], devices=["A100-SXM4-80GB"])
    price = offer.stated_price(Market.SPOT)
    hours = sky().run.total_s / 3600  # type: ignore[union-attr]
    assert sky().cost_usd == pytest.approx(2 * price * hours, rel=0.01)  # and a little storage
    by_type = sky(
        resources={"instance_type": offer.instance_type, "infra": "aws/us-east-1", "use_spot": True}
    )
    assert by_type.cost_usd == pytest.approx(2 * price * hours, rel=1e-9)
    assert offer.instance_type in by_type.notes[0]
    # A command that uses half of the devices pays for all of them.
    half = sky(run=TORCHRUN.replace("$SKYPILOT_NUM_GPUS_PER_NODE", "4"))
    assert half.fields["gpus"] == 8
    assert half.cost_usd == pytest.approx(2 * price * half.run.total_s / 3600, rel=1e-9)  # type: ignore[union-attr]


def test_every_choice_of_hosts_is_estimated() -> None:
    resources = {"any_of": [{"accelerators": {"A100:8": None, "H100:8": None}}, {"accelerators": ["V100:8"]}]}
    found = skypilot.estimate([{"name": "pipeline"}, {**TASK, "resources": resources}])
    assert [each.fields["device"] for each in found] == [
        "A100-SXM4-40GB", "H100-SXM5-80GB", "V100-SXM2-16GB",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"resources": {"accelerators": "Z9000:8"}}, ("Z9000", "--device")),
        ({"resources": {"accelerators": "A100:0.5"}}, ("0.5", "part of a device")),
        ({"resources": {"accelerators": "A100:many"}}, ("many", "no count")),
        ({"resources": {}}, ("No accelerator", "--device")),
        ({"resources": [1]}, ("resources", "no mapping")),
        ({"num_nodes": 0}, ("num_nodes=0", "above 0")),
        ({"run": ["a"]}, ("run", "not text")),
        ({"envs": "A=1"}, ("envs", "no mapping")),
        ({"service": {}}, ("service", "train")),
        ({"run": TORCHRUN.replace("--max_steps 20000", "")}, ("how long", "steps, epochs or tokens")),
        ({"run": "python train.py"}, ("which model", "PRECISION_TIME model=", "--model")),
        ({"envs": {"MODEL": "./net.py:net"}}, ("code or a file", "known name")),
        ({"envs": {"MODEL": "no-such-model"}}, ("no-such-model",)),
    ],
)
def test_what_a_task_lacks_is_said_with_what_to_give(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    found = sky(**changes)
    assert found.run is None
    for word in words:
        assert word in found.reason


def test_nobody_elses_price_stands_for_an_unknown_cloud() -> None:
    found = sky(resources={"accelerators": "A100-80GB:8", "cloud": "fluidstack"})
    assert found.run is not None
    assert found.cost_usd is None
    assert "fluidstack" in " ".join(found.notes)
    assert sky(resources={"accelerators": "A100-80GB:8", "local_disk": "nvme"}).unread == (
        "resources.local_disk: 'nvme'",
    )


def test_skypilot_is_told_seconds() -> None:
    def resources(accelerators: dict[str, float]) -> SimpleNamespace:
        return SimpleNamespace(
            accelerators=accelerators, instance_type=None, cloud=None, region=None, use_spot=False
        )

    seconds = skypilot.time_estimator({**TASK, "num_nodes": 1}, quantile=0.9)
    a100, h100 = (seconds(resources({name: 8})) for name in ("A100-80GB", "H100"))
    expected = sky(num_nodes=1, resources={"accelerators": "A100-80GB:8"}).duration_s(0.9)
    assert expected is not None
    assert isinstance(a100, int)
    assert expected <= a100 < expected + 1
    assert h100 < a100
    with pytest.warns(UserWarning, match="Z9000"):
        assert seconds(resources({"Z9000": 8})) == skypilot.NEVER_S
    with pytest.raises(ConfigError, match="how long"):
        skypilot.time_estimator({**TASK, "run": TORCHRUN.replace("--max_steps 20000", "")})


def bomb(levels: int) -> bytes:
    """A task of few bytes whose aliases stand for 10 ** levels values."""
    lines = ["run: x", "a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]" for level in range(1, levels)]
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (bomb(9), "aliases"),
        (b"\n---\n".join([bomb(5)] * 12), "aliases"),
        (b"run: " + b"[" * 5000, "valid YAML"),
        (b"run: &a [*a]\n", "itself"),
        (b"\x00\xff", "cannot be read"),
        (b"", "no job file"),
        (b"- 1\n- 2\n", "no job file"),
        (b"x" * (2**20 + 1), "larger than 1 MiB"),
        (b"!!python/object/apply:os.system ['true']", "valid YAML"),
    ],
)
def test_files_of_others_are_data(content: bytes, word: str, tmp_path: Path) -> None:
    path = tmp_path / "task.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=word):
        estimate_file(path)


def test_a_task_file_is_answered_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "task.yaml"

    def asked(*options: str) -> tuple[int, str, str]:
        code = 0
        try:
            main(["estimate", str(path), *options])
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    path.write_text(json.dumps({**TASK, "run": TORCHRUN.replace("--max_steps 20000", "")}))
    code, out, _ = asked("--json")
    [job] = json.loads(out)["jobs"]
    assert (code, job["missing"], job["expected_s"]) == (0, ["steps|epochs|tokens"], None)
    [job] = json.loads(asked("--steps", "20000", "--json")[1])["jobs"]
    assert job["duration_s"]["p90"] == sky().duration_s(0.9)
    assert "8 x H100-SXM5-80GB" in asked("--epochs", "1", "--samples", "640k", "-d", "8xH100")[1]
    path.write_text("resources: {accelerators: A100}\nrun: python train.py\n")
    code, out, said = asked()
    assert (code, out) == (2, "")
    assert "which model" in said


@pytest.mark.parametrize("typed", [{}, {"steps": 20}, {"model": "resnet50"}])
def test_a_file_names_no_files(typed: dict[str, Any], tmp_path: Path) -> None:
    named = {
        "calibration": str(tmp_path / "cal.csv"), "custom": str(tmp_path / "own.yaml"),
    }  # fmt: skip
    found = estimate_job(
        source="",
        fields={"model": "resnet50", "steps": 10, **named},
        options={"grid_hours": str(tmp_path / "grid.csv")},
        given=typed,
    )
    assert found.run is not None
    assert len(found.unread) == 3
    assert all(str(tmp_path) in text for text in found.unread)
    fields = {"model": "resnet50", "steps": 10, "precision": str(tmp_path / "own.yaml")}
    alone = estimate_job(source="", fields=fields, given=typed)
    assert alone.run is None and "precision of the job is in a file" in alone.reason
    assert estimate_job(source="", fields=fields, given={**typed, "precision": "bf16"}).run is not None


def test_a_recipe_is_reported_and_answered_as_predict_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lora.yml"
    path.write_text(
        "base_model: NousResearch/Llama-3.2-1B\nadapter: lora\nlora_r: 16\nsequence_len: 2048\n"
        "micro_batch_size: 2\nnum_epochs: 1\nbf16: auto\nfoo: 1\ndatasets:\n- path: tatsu-lab/alpaca\n"
    )
    words = [str(path), "-d", "A100", "-b", "4"]

    def said(*words: str) -> tuple[str, str]:
        with pytest.raises(SystemExit, match="0"):
            main([*words])
        return capsys.readouterr()

    out, err = said("estimate", *words)
    assert "axolotl 0.18.0: time and cost" in out
    lines = [" ".join(line.split()) for line in err.splitlines()]
    assert lines[0].startswith(f"{path} is read as axolotl 0.18.0: line 1: base_model=")
    assert "Not understood: line 8: foo=1: not a key that is known of axolotl." in " ".join(lines)
    assert "Overridden by your options: batch_size, 2 in the recipe, is 4." in " ".join(lines)
    [job] = json.loads(said("estimate", *words, "--json")[0])["jobs"]
    run = json.loads(said("predict", *words, "--whole-run", "--json")[0])
    assert job["reason"] == ""
    assert job["expected_s"] == run["total_s"] > 0
    assert job["report"][0].startswith(f"{path} is read as")


def test_python_is_a_recipe_whatever_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "#!/usr/bin/env python\nfrom trl import SFTConfig, SFTTrainer\n"
        "SFTTrainer('gpt2', args=SFTConfig(max_steps=10, max_length=512, bf16=True))\n"
    )
    [job] = estimate_file(path, given={"device": "A100", "usd_per_device_hour": 1.0})
    assert (job.source.split()[0], job.reason) == ("TRL", "")
    assert job.run is not None and job.cost_usd is not None
