"""The commands that list what is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LISTS = {
    "models": "resnet50",
    "devices": "A100-SXM4-80GB",
    "precisions": "fp16-mixed",
    "stacks": "pytorch-eager",
}


@pytest.mark.parametrize("command", LISTS)
def test_lists_hold_the_well_known(cli: Callable[..., Any], command: str) -> None:
    assert LISTS[command] in cli("list", command).out


@pytest.mark.parametrize("command", LISTS)
def test_json_is_all_there_is_on_stdout(cli: Callable[..., Any], command: str) -> None:
    answer = cli("list", command, "--json")
    document = json.loads(answer.out)
    assert LISTS[command] in json.dumps(document[command])
    assert answer.err == ""


def test_models_can_be_searched(cli: Callable[..., Any]) -> None:
    found = cli("list", "models", "--search", "LLAMA", "--json").out
    names = [entry["name"] for entry in json.loads(found)["models"]]
    assert names
    assert all("llama" in name for name in names)


@pytest.mark.parametrize(
    ("words", "kind", "held"),
    [
        (("--search", "rtx 40"), "devices", "RTX4090"),
        (("--search", "google"), "devices", "TPUv4"),
        (("--search", "HOPPER"), "devices", "H100-SXM5-80GB"),
        (("--search", "p4d", "--node-types"), "node_types", "p4d.24xlarge"),
    ],
)
def test_devices_can_be_searched(
    cli: Callable[..., Any], words: tuple[str, ...], kind: str, held: str
) -> None:
    def names(*said: str) -> set[str]:
        return {entry["name"] for entry in json.loads(cli("list", "devices", *said, "--json").out)[kind]}

    found, everything = names(*words), names(*words[2:])
    assert held in found
    assert "A100-SXM4-80GB" not in found
    assert len(found) < len(everything) / 4


def test_models_can_be_chosen_by_family(cli: Callable[..., Any]) -> None:
    entries = json.loads(cli("list", "models", "--family", "cnn", "--json").out)["models"]
    assert "resnet50" in {entry["name"] for entry in entries}
    assert {entry["family"] for entry in entries} == {"cnn"}


def test_one_device_shows_its_figures_and_their_sources(cli: Callable[..., Any]) -> None:
    device = json.loads(cli("list", "devices", "H100-SXM5-80GB", "--json").out)
    assert device["peak_flops_per_s"]["bf16"] == pytest.approx(989.4e12, rel=0.002)
    assert device["memory_bandwidth_bytes_per_s"] == pytest.approx(3.35e12, rel=0.01)
    assert device["sources"]


def test_own_devices_are_listed_with_the_known(cli: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[device.MyGPU]\nbase = "A100-SXM4-80GB"\nmemory_gb_per_s = 2500\n')
    words = ("list", "devices", "--custom", str(file))
    assert "MyGPU" in cli(*words).out
    device = json.loads(cli("list", "devices", "MyGPU", "--custom", str(file), "--json").out)
    assert device["memory_bandwidth_bytes_per_s"] == 2.5e12


def test_node_types_are_listed(cli: Callable[..., Any]) -> None:
    nodes = json.loads(cli("list", "devices", "--node-types", "--json").out)["node_types"]
    by_name = {node["name"]: node for node in nodes}
    assert by_name["DGX-A100"]["devices"] == 8
    assert "DGX-A100" in cli("list", "devices", "--node-types").out


def test_env_says_what_is_installed_without_importing_it(cli: Callable[..., Any]) -> None:
    import precision_time

    found = json.loads(cli("env", "--json").out)
    assert found["precision_time"] == precision_time.__version__
    assert found["packages"]["numpy"].count(".") == 2
    assert isinstance(found["gpus"], list)


@pytest.mark.parametrize(
    ("torch", "torchvision", "says"),
    [("2.13.0+cpu", "0.28.0", True), ("2.13.0+cpu", "0.28.0+cpu", False), ("2.13.0", "0.28.0", False),
     ("2.13.0+cpu", None, False), (None, None, False)],
)  # fmt: skip
def test_env_says_when_torchvision_is_of_another_build(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, torch: str, torchvision: str, says: bool
) -> None:
    versions = {"torch": torch, "torchvision": torchvision}
    monkeypatch.setattr("precision_time.cli.env._version_of", versions.get)
    assert ("import precision_time_integrations.online.lightning" in cli("env").err) is says


def test_explain_ranks_what_could_slow_a_measured_step_down(cli: Callable[..., Any]) -> None:
    job = ["explain", "resnet50", "-d", "A100", "-b", "128", "-p", "fp16-mixed"]
    page = cli(*job, "--measured", "450ms").out
    assert "What could explain it" in page
    assert "something that is not listed here" in page
    symptoms = ["--utilization", "30", "--data-wait", "0.3s"]
    told = json.loads(cli(*job, "--measured", "450ms", *symptoms, "--json").out)
    assert (told["measured_s"], told["utilization"], told["data_wait_s"]) == (0.45, 0.3, 0.3)
    assert told["causes"][0]["name"] == "input"
    assert "othing to explain" in cli(*job, "--measured", f"{told['predicted_s']}s").out
    assert "--measured" in cli(*job, "--utilization", "30").err
    assert "two questions" in cli(*job, "--measured", "1s", "--what", "numbers").err


def test_explain_sets_a_precision_against_fp32(cli: Callable[..., Any]) -> None:
    document = json.loads(cli("explain", "resnet50", "--precision", "fp16-mixed", "--json").out)
    rows = document["rows"]
    assert {"op_class", "phase", "flops", "bytes"} <= rows[0].keys()
    assert "conv" in {row["op_class"] for row in rows}
