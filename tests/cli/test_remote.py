"""`--server URL`: a service answers, and the command prints what it prints without one."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from precision_time.client.remote import ASKED_OF_SERVERS

from .conftest import Answer

Cli = Callable[..., Answer]
Served = Callable[..., AbstractContextManager[str]]
TINY = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 512,
}  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, served: Served) -> Iterator[str]:
    """Address of a service in a thread of this process."""
    with served(tmp_path_factory.mktemp("service"), tokens="secret") as address:
        yield f"http://{address}"


@pytest.fixture
def remote(cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line with `--server` and its token."""
    monkeypatch.setenv("PRECISION_TIME_TOKEN", "secret")
    return lambda *words: cli("--server", url, *words)


@pytest.mark.parametrize(
    "words",
    [
        "predict resnet50 -d A100-SXM4-80GB -g 8 -p fp16-mixed -b 256 --epochs 90",
        "predict resnet50 -d A100-SXM4-80GB -g 8 -p fp16-mixed --json",
        "predict resnet50 -g 8 --why",
        "predict bert-large -d V100-SXM2-32GB -g 8 -p all --seq-len 512",
        "predict bert-large -d V100-SXM2-32GB -g 8 -p all --json",
        "predict resnet50 -d A100,V100-SXM2-16GB -g 1,3,8 --sort throughput",
        "predict resnet50 -d A100 -g 8,16 --brief",
        pytest.param("predict llama3-70b -d H100-SXM5-80GB -g 1", marks=pytest.mark.slow),
        "predict resnet50 -d A1000X",
        "predict llama3-8b --tp 3 -g 8",
        "predict resnet50 -g 0",
        "run resnet50 -d 8xA100 -b 256 --epochs 90 --spot",
        "run resnet50 -d 8xA100 -b 256 --epochs 90 --json",
        "plan resnet50 --epochs 90 --deadline 24h --budget 500 --devices A100 --gpus 8",
        "plan resnet50 --epochs 90 --deadline 1m --devices A100 --gpus 4,8 --json",
        "layout llama3-8b -d H100-SXM5-80GB -g 8 --global-batch-size 64 --fix zero_stage=1 --top 3",
    ],
)
def test_a_service_prints_what_is_printed_here(cli: Cli, remote: Cli, words: str) -> None:
    here, there = cli(*words.split()), remote(*words.split())
    assert there == here


def test_a_file_of_jobs(cli: Cli, remote: Cli, tmp_path: Path) -> None:
    jobs, here, there = tmp_path / "jobs.csv", tmp_path / "here.csv", tmp_path / "there.csv"
    jobs.write_text(
        "model,device,gpus\nresnet50,A100,8\nresnet50,A1000X,8\nbert-base,V100,-1\nbert-base,V100,2\n"
    )
    assert cli("predict", "--jobs", str(jobs), "-o", str(here)).code == 2
    assert remote("predict", "--jobs", str(jobs), "-o", str(there)).code == 2
    assert there.read_text() == here.read_text()


def test_a_configuration_is_sent(cli: Cli, remote: Cli, tmp_path: Path) -> None:
    config = tmp_path / "tiny" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps(TINY))
    words = ("predict", str(config), "-d", "A100", "-g", "2", "--json")
    here, there = cli(*words), remote(*words)
    assert there.code == 0
    assert there == here


@pytest.mark.parametrize("more", [(), ("--json",), ("--input", "float32[B,32]")])
def test_code_is_captured_here_and_its_graph_sent(
    cli: Cli, remote: Cli, tmp_path: Path, more: tuple[str, ...]
) -> None:
    path = tmp_path / "net.py"
    path.write_text(
        "from torch import nn\n\ndef small(width=64):\n    return nn.Sequential(nn.Linear(32, width))\n"
    )
    words = ("predict", f"{path}:small", "-d", "A100", "-g", "2", "--size", "width=128", *more)
    here, there = cli(*words), remote(*words)
    assert there.code == 0
    assert there == here


@pytest.mark.slow
def test_a_file_is_uploaded(cli: Cli, remote: Cli, tmp_path: Path) -> None:
    import onnx

    made, kind = onnx.helper, onnx.TensorProto.FLOAT
    ends = [made.make_tensor_value_info(name, kind, [4, size]) for name, size in (("x", 64), ("y", 32))]
    weights = made.make_tensor("w", kind, [64, 32], [0.0] * 64 * 32)
    node = made.make_node("MatMul", ["x", "w"], ["y"])
    graph = made.make_graph([node], "net", ends[:1], ends[1:], [weights])
    path = tmp_path / "net.onnx"
    onnx.save(made.make_model(graph, opset_imports=[made.make_opsetid("", 17)], ir_version=8), path)
    words = ("predict", str(path), "-d", "A100", "-g", "2", "-p", "fp32,tf32")
    for form in ((), ("--json",)):
        here, there = cli(*words, *form), remote(*words, *form)
        assert there.code == 0
        assert there == here


def test_a_stored_cluster_says_what_is_not_said(cli: Cli, remote: Cli, url: str) -> None:
    from precision_time import Client

    with Client(url, token="secret") as client:
        client.put_cluster("pod", fields={"device": "V100-SXM2-32GB", "gpus": 4})
    words = ("predict", "resnet50", "-p", "fp16-mixed", "-b", "64", "--brief")
    there = remote("--cluster", "pod", *words)
    assert there.out == cli(*words, "-d", "V100-SXM2-32GB", "-g", "4").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("predict resnet50 --emit torchrun", "--emit does not go with --server"),
        ("plan resnet50 --epochs 1 --why", "--why does not go with --server"),
        ("layout llama3-8b -g 8 --timeline step.svg", "--timeline does not go with --server"),
        ("evaluate runs.csv", "evaluate does not go to a server"),
        ("devices", "list does not go to a server"),
        ("predict resnet50 --custom own.toml", "own.toml"),
        ("predict nowhere.onnx", "nowhere.onnx"),
    ],
)
def test_what_does_not_go_to_a_service_is_said(remote: Cli, words: str, said: str) -> None:
    answer = remote(*words.split())
    assert answer.code == 2
    assert said in answer.err
    assert "To fix" in answer.err
    assert answer.out == ""


def test_a_service_that_is_not_there(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("precision_time.client.client.sleep", lambda _: None)
    for address, said in (("http://127.0.0.1:1", "No answer from"), ("somewhere", "no address of a service")):
        answer = cli("--server", address, "predict", "resnet50")
        assert (answer.code, answer.out) == (2, "")
        assert said in answer.err
    assert "names a cluster of a service" in cli("--cluster", "pod", "predict", "resnet50").err


def test_a_silent_service_is_given_as_long_as_is_said(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        answer = cli("--server", address, "--server-timeout", "0.2", "predict", "resnet50")
    assert (answer.code, answer.out) == (2, "")
    assert "not all of it came within 0.2 s" in answer.err
    for words, said in (
        (("--server", address, "--server-timeout", "0"), "above 0"),
        (("--server-timeout", "5"), "is of a service"),
    ):
        answer = cli(*words, "predict", "resnet50")
        assert (answer.code, answer.out) == (2, "")
        assert said in answer.err
        assert "To fix" in answer.err


def test_a_wrong_token(cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRECISION_TIME_TOKEN", "another")
    answer = cli("--server", url, "predict", "resnet50")
    assert answer.code == 2
    assert "No token that this service accepts" in answer.err
    assert "another" not in answer.err


def test_the_environment_names_the_service(cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRECISION_TIME_TOKEN", "secret")
    monkeypatch.setenv("PRECISION_TIME_SERVER", url)
    assert "There is no cluster 'nowhere'" in cli("--cluster", "nowhere", "predict", "resnet50").err
    here = cli("list", "stacks")
    assert here.code == 0
    assert "list is answered here" in here.err
    assert "--server" in cli("--help").out


def test_every_command_that_asks_a_service_says_so(cli: Cli) -> None:
    assert all(name in re.sub(r"\s+", " ", cli("--help").out) for name in ASKED_OF_SERVERS)


def test_without_a_service_nothing_of_http_is_loaded() -> None:
    code = (
        "import sys\nfrom precision_time.cli.main import main\n"
        "try:\n    main(['predict', 'resnet50', '--brief'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in sys.modules if name.split('.')[0] in "
        "('httpx2', 'anyio', 'fastapi', 'starlette') or name.startswith('precision_time_server')])"
    )
    done: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
