"""Questions of agents: asked by the protocol's own client, answered as the command line answers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import jsonschema_rs
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from starlette.testclient import TestClient

from precision_time.cli.main import main
from precision_time_integrations.agents.server import http_app, server
from precision_time_integrations.agents.tools import tools

PREDICTED: list[Mapping[str, Any]] = [
    {"model": "resnet50", "device": "A100", "gpus": 8, "epochs": 90},
    {"model": "resnet50", "precision": "fp32", "batch_size": 64},
    {"model": "bert-large", "device": "V100", "gpus": 8, "seq_len": 512, "steps": 1000},
    {"model": "llama3-8b", "device": "H100", "gpus": 8, "adapter": "lora", "dataset": "alpaca", "epochs": 3},
    {"model": "llama3-8b", "device": "T4", "tokens": "1B"},
    {"model": "llama3-70b", "device": "H100", "gpus": 64, "tp": 8, "pp": 4, "num_microbatches": 16},
    {"model": "vit-b-16", "device": "RTX4090", "batch_size": 128},
    {"model": "mixtral-8x7b", "device": "H100", "gpus": 16, "precision": "fp8-mixed"},
    {"model": "gpt2", "device": "TPUv4", "gpus": 8, "global_batch_size": 512},
    {"model": "resnet50", "device": "A100", "epochs": 5, "stack": "pytorch-eager", "compiler": "inductor"},
    {"model": "qwen2.5-7b", "device": "RTX4090", "adapter": "qlora", "fields": {"lora_rank": 8}},
    {"model": "sdxl", "device": "A100", "batch_size": 4, "steps": 100},
]
"""What `predict` is asked."""
SEARCHED: list[tuple[str, Mapping[str, Any], list[str]]] = [
    (
        "plan",
        {"model": "resnet50", "epochs": 90, "devices": ["A100", "H100"], "gpus": 8},
        ["plan", "resnet50", "--epochs", "90", "--devices", "A100,H100", "--gpus", "8"],
    ),
    (
        "plan",
        {
            "model": "bert-large",
            "steps": 1000,
            "devices": "A100",
            "gpus": 8,
            "deadline": "24h",
            "budget": "100",
        },
        [
            *("plan", "bert-large", "--steps", "1000", "--devices", "A100", "--gpus", "8"),
            *("--deadline", "24h", "--budget", "100"),
        ],
    ),
    (
        "layout",
        {"model": "llama3-8b", "device": "H100", "gpus": 8, "global_batch_size": 64, "top": 3},
        ["layout", "llama3-8b", "-d", "H100", "-g", "8", "--global-batch-size", "64", "--top", "3"],
    ),
    (
        "layout",
        {
            "model": "llama3-8b",
            "device": "A100",
            "gpus": 16,
            "global_batch_size": 64,
            "fix": "tp=2",
            "top": 2,
        },
        [
            *("layout", "llama3-8b", "-d", "A100", "-g", "16", "--global-batch-size", "64"),
            *("--fix", "tp=2", "--top", "2"),
        ],
    ),
]
"""What plans and layouts are asked, and the same as a command line."""
_SCRIPT = """\
from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained(
    "unsloth/llama-3-8b-bnb-4bit", max_seq_length=2048, load_in_4bit=True
)
model = FastLanguageModel.get_peft_model(model, r=16)
args = SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4, max_steps=60)
trainer = SFTTrainer(model=model, args=args)
"""
RECIPES: list[tuple[str, Mapping[str, str], Mapping[str, Any]]] = [
    (
        "run.yml",
        {
            "run.yml": "base_model: NousResearch/Llama-3.2-1B\nmicro_batch_size: 2\nsequence_len: 2048\n"
            "adapter: lora\nlora_r: 16\ndatasets:\n- path: teknium/GPT4-LLM-Cleaned\nnum_epochs: 1\n"
            "bf16: auto\ndeepspeed: ds.json\n",
            "ds.json": '{"zero_optimization": {"stage": 2}}',
        },
        {"device": "A100", "gpus": 8},
    ),
    ("train.py", {"train.py": _SCRIPT}, {"device": "T4"}),
    (
        "pretrain.sh",
        {
            "pretrain.sh": "#!/bin/bash\ntorchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py"
            " --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048"
            " --micro-batch-size 2 --global-batch-size 256 --tensor-model-parallel-size 2 --bf16"
            " --train-iters 500000\n",
        },
        {"device": "H100"},
    ),
    (
        "llama3_8b.toml",
        {
            "llama3_8b.toml": '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\n'
            "seq_len = 8192\nsteps = 1000\n",
        },
        {"device": "H100", "gpus": 8, "batch_size": 2},
    ),
]
"""Recipes with the files that they name, and what is said beside them."""
REFUSED: list[tuple[str, Mapping[str, Any], str]] = [
    ("predict", {"model": "resnet51"}, "model"),
    ("predict", {"model": "resnet50", "gpus": 0}, "gpus"),
    ("predict", {"model": "resnet50", "device": "Q100"}, "device"),
    ("predict", {"model": "resnet50", "fields": {"lora_rnk": 8}}, "lora_rnk"),
]
"""What cannot be answered, and the field that the error names."""


def _asked(*calls: tuple[str, Mapping[str, Any]]) -> list[tuple[bool, dict[str, Any]]]:
    """Answers of the tools, over the protocol."""

    async def ask() -> list[tuple[bool, dict[str, Any]]]:
        async with Client(server()) as client:
            found = [await client.call_tool(name, dict(arguments)) for name, arguments in calls]
            return [(bool(each.is_error), each.structured_content) for each in found]

    return anyio.run(ask)


def _printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    try:
        main([*words, "--json"])
    except SystemExit as ended:
        assert ended.code in (0, 3)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def _words(arguments: Mapping[str, Any]) -> list[str]:
    """The same question as a command line."""
    fields = {**arguments, **arguments.get("fields", {})}
    model = fields.pop("model")
    fields.pop("fields", None)
    pairs = [word for name, value in fields.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return ["predict", model, *pairs, "--brief"]


def test_predictions_are_those_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    answers = _asked(*(("predict", each) for each in PREDICTED))
    for question, (wrong, answer) in zip(PREDICTED, answers, strict=True):
        assert not wrong, (question, answer)
        printed = _printed(_words(question), capsys)["predictions"][0]
        assert {name: answer[name] for name in printed} == printed


def test_plans_and_layouts_are_those_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    answers = _asked(*((name, arguments) for name, arguments, _ in SEARCHED))
    for (name, _, words), (wrong, answer) in zip(SEARCHED, answers, strict=True):
        assert not wrong, answer
        printed = _printed(words, capsys)
        if name == "plan":
            both = [
                [(each["aim"], each["candidate"]) for each in found["choices"]] for found in (answer, printed)
            ]
        else:
            both = [
                [each["layout"] for each in answer["layouts"]],
                [each["layout"] for each in printed["ranked"]],
            ]
            steps = [each["prediction"]["step_time_s"] for each in printed["ranked"]]
            assert [each["step_time_s"] for each in answer["layouts"]] == steps
        assert both[0] == both[1]
        assert both[0]


def _read(name: str, files: Mapping[str, str], **fields: Any) -> tuple[bool, dict[str, Any]]:
    beside = {other: text for other, text in files.items() if other != name}
    asked = {"name": name, "text": files[name], "files": beside, "fields": fields}
    ((wrong, answer),) = _asked(("read_recipe", asked))
    return wrong, answer


@pytest.mark.parametrize("recipe", RECIPES, ids=[name for name, _, _ in RECIPES])
def test_a_recipe_is_read_and_predicted_as_on_the_command_line(
    recipe: tuple[str, Mapping[str, str], Mapping[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, files, fields = recipe
    for other, text in files.items():
        (tmp_path / other).write_text(text)
    monkeypatch.chdir(tmp_path)
    wrong, read = _read(name, files, **{field: str(value) for field, value in fields.items()})
    assert not wrong, read
    ((wrong, answer),) = _asked(("predict", read["question"]))
    assert not wrong, answer
    printed = _printed(_words({"model": name, **fields}), capsys)
    assert read["recipe"] == printed["recipe"]
    (told,) = printed["predictions"]
    assert {key: answer[key] for key in told} == told


def test_a_recipe_opens_no_file_that_was_not_sent(tmp_path: Path) -> None:
    beside = tmp_path / "ds.json"
    beside.write_text('{"zero_optimization": {"stage": 3}}')
    text = f"base_model: net.py:build\nmicro_batch_size: 1\ndeepspeed: {beside}\n"
    wrong, read = _read("a.yml", {"a.yml": text})
    assert not wrong
    assert "zero_stage" not in {**read["question"], **read["question"].get("fields", {})}
    assert any("is not there to be read: its ZeRO stage" in line for line in read["report"])
    assert "model" in read["missing"]
    assert any("a file or code, which is not opened" in line for line in read["report"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "a.yml", "text": "resources: 3"}, "no recipe of a project that is known"),
        ({"name": "a.yml", "text": "base_model: [\n"}, "not a valid .yml file"),
        ({"name": "a.py", "text": "print(1)"}, "nothing of Unsloth"),
        ({"name": "a.yml", "text": " "}, "text="),
        ({"name": "a.yml", "text": ["x"]}, "text="),
        ({"name": "a.yml", "text": "x" * 1_000_001}, "text has 1,000,001 characters"),
        ({"name": "a\n", "text": "base_model: x"}, "is no name of a file"),
        ({"text": "base_model: x", "files": ["a"]}, "files="),
        ({"text": "base_model: x", "files": {str(n): "" for n in range(17)}}, "files has 17 entries"),
        ({"text": "torchrun train.py", "fields": {"custom": "own.yaml"}}, "custom="),
    ],
)
def test_a_recipe_that_cannot_be_read_is_refused(arguments: Mapping[str, Any], words: str) -> None:
    ((wrong, answer),) = _asked(("read_recipe", arguments))
    assert wrong
    assert words in answer["error"]["detail"]
    assert answer["error"]["fix"]


def test_an_error_names_the_field_and_the_remedy() -> None:
    for (_, arguments, field), (wrong, answer) in zip(
        REFUSED, _asked(*((name, arguments) for name, arguments, _ in REFUSED)), strict=True
    ):
        assert wrong
        assert answer["schema"] == "error/1"
        assert answer["error"]["fix"]
        assert field in (answer["error"]["field"], *answer["error"]["detail"].replace("'", " ").split()), (
            arguments
        )


@pytest.mark.parametrize(
    "arguments",
    [
        {"model": "train.py"},
        {"model": "module:function"},
        {"model": "resnet50", "fields": {"custom": "own.yaml"}},
        {"model": "resnet50", "fields": {"predictor": "own.json"}},
        {"model": "resnet50", "precision": "own.yaml"},
        {"model": "resnet50", "unknown": 1},
        {"model": "resnet50", "gpus": 8, "fields": {"gpus": 4}},
    ],
)
def test_files_code_and_unknown_arguments_are_refused(arguments: Mapping[str, Any]) -> None:
    ((wrong, answer),) = _asked(("predict", arguments))
    assert wrong
    assert "To fix" not in answer["error"]["detail"]
    assert answer["error"]["fix"]


def test_schemas_hold_what_is_taken_and_given() -> None:
    for tool in tools():
        takes, gives = (jsonschema_rs.validator_for(dict(each)) for each in (tool.takes, tool.gives))
        if tool.name == "predict":
            for question in PREDICTED:
                assert takes.is_valid(dict(question)), question
            ((_, answer),) = _asked(("predict", PREDICTED[0]))
            assert gives.is_valid(answer)
        assert tool.title
        assert tool.description


def test_what_does_not_fit_has_its_figures_apart() -> None:
    ((_, answer),) = _asked(("predict", {"model": "llama3-8b", "device": "T4", "tokens": "1B"}))
    assert answer["fits"] is False
    assert "step_time_s" not in answer
    assert answer["if_it_fitted"]["step_time_s"] > 0


def test_over_stdin_and_stdout() -> None:
    place = StdioServerParameters(
        command=sys.executable, args=["-m", "precision_time", "mcp"], env=dict(os.environ)
    )

    async def ask() -> tuple[list[str], dict[str, Any]]:
        async with Client(place) as client:
            names = [each.name for each in (await client.list_tools()).tools]
            found = await client.call_tool("devices", {"name": "H100"})
            return names, found.structured_content

    names, answer = anyio.run(ask)
    assert names == [tool.name for tool in tools()]
    assert answer["devices"][0]["name"] == "H100-SXM5-80GB"


_CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "127.0.0.1:8765", "authorization": "Bearer secret"}, 200),
        ({"host": "127.0.0.1:8765"}, 401),
        ({"host": "127.0.0.1:8765", "authorization": "Bearer other"}, 401),
        ({"host": "rebound.example:8765", "authorization": "Bearer secret"}, 421),
        (
            {
                "host": "127.0.0.1:8765",
                "origin": "https://elsewhere.example",
                "authorization": "Bearer secret",
            },
            403,
        ),
    ],
)
def test_over_http_on_this_machine(headers: dict[str, str], status: int) -> None:
    accepts = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    with TestClient(http_app(token="secret"), base_url="http://127.0.0.1:8765") as client:  # noqa: S106
        assert client.post("/mcp", json=_CALL, headers={**accepts, **headers}).status_code == status
    with pytest.raises(Exception, match="this machine alone"):
        http_app(token=None, host="0.0.0.0")  # noqa: S104
