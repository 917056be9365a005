"""Models of one's own: found in a file, given inputs by trying, told apart by what they return."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from precision_time.capture import remembered
from precision_time.capture.sources import capture_model
from precision_time.cli.main import main
from precision_time.errors import CaptureError, ConfigError
from precision_time.request.request import Request
from precision_time.request.resolve import workload_of

NETS = """
import torch
from torch import nn
from torch.nn import functional as F

class Part(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(width, 2, 64, batch_first=True)
    def forward(self, x):
        return self.layer(x)

class Gpt(nn.Module):
    def __init__(self, width=32, layers=2, words=100):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(48, width)
        self.parts = nn.Sequential(*(Part(width) for _ in range(layers)))
        self.head = nn.Linear(width, words)
    def forward(self, idx, targets=None):
        x = self.parts(self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device)))
        if targets is None:  # as nanoGPT does: only the last token is of interest then
            return self.head(x[:, -1:]), None
        logits = self.head(x)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def loss_of_sum(self, idx):
        return self.head(self.wte(idx)).sum()
"""
CONVS = """
from torch import nn
def build():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 30 * 30, 10))
class Other(nn.Module):
    pass
"""


@pytest.fixture
def nets(tmp_path: Path) -> str:
    (tmp_path / "nets.py").write_text(NETS)
    return f"{tmp_path / 'nets.py'}:Gpt"


def test_a_model_of_a_file_and_its_token_ids(nets: str) -> None:
    graph = capture_model(nets)
    assert (graph.name, graph.seq_len) == ("nets.py:Gpt", 48)  # as many as it has places for
    # The targets are given, so the head runs over all 48 tokens of 32 wide to 100 words.
    assert any(node.m * node.n * node.k == 48 * 32 * 100 for node in graph.nodes)
    assert "idx:int64[B,48]" in graph.notes and "targets:int64[B,48]" in graph.notes
    assert "no loss" not in graph.notes  # it returns its loss


def test_arguments_of_the_class_and_inputs_in_words(nets: str) -> None:
    plain, large = (capture_model(nets, sizes=sizes) for sizes in ({}, {"layers": 6}))
    per_layer = 32 * 96 + 96 + 32 * 32 + 32 + 2 * 32 * 64 + 64 + 32 + 4 * 32
    assert large.params - plain.params == 4 * per_layer
    stated = capture_model(nets, inputs=["idx:int64[B,16]"])
    assert stated.seq_len == 16 and stated.notes.endswith("taken for the loss.") is False
    assert capture_model(nets, forward="loss_of_sum", seq_len=16).forward_flops == 2 * 16 * 32 * 100


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sizes": {"depth": 3}}, "width, layers, words"),
        ({"inputs": ["ids:int64[B,16]"]}, "idx, targets"),
        ({"inputs": ["idx:int46[B,16]"]}, "int64"),
        ({"inputs": ["idx:int64[4,16]"]}, "batch"),
        ({"forward": "train_it"}, "loss_of_sum"),
        ({"image_size": 224}, "image_size=224 does not apply"),
        ({"loss": "torch"}, "module:function"),
    ],
)
def test_what_does_not_apply_is_refused(nets: str, options: dict[str, object], named: str) -> None:
    with pytest.raises((ConfigError, CaptureError), match=named):
        capture_model(nets, **options)


def test_a_name_that_a_file_lacks_gets_its_models(tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    file.write_text(CONVS)
    assert capture_model(f"{file}:build").image_size == 32  # only 32 pixels fit its last layer
    with pytest.raises(CaptureError, match="no 'biuld'.*build"):
        capture_model(f"{file}:biuld")


TOWERS = """
import torch
from torch import nn
class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(1000, 8), nn.Embedding(500, 8)
        self.tower = nn.Linear(8, 16)
    def forward(self, user_id, item_id):
        return (self.tower(self.users(user_id)) * self.tower(self.items(item_id))).sum(-1)
"""


def test_a_recommender_of_users_and_items_takes_an_id_of_each(tmp_path: Path) -> None:
    (tmp_path / "towers.py").write_text(TOWERS)
    asked = {"model": f"{tmp_path / 'towers.py'}:Towers", "device": "T4", "dataset": "ml-20m", "epochs": 2}
    workload = Request.of({**asked, "batch_size": 4096}).resolve().workload
    assert workload.graph.seq_len is None and workload.graph.forward_flops == 2 * 2 * 8 * 16
    assert "user_id:int64[B], item_id:int64[B] taken" in workload.assumptions[0]
    assert workload.optimizer == "adamw"
    # Its epochs are those of the data set that is named.
    assert workload.dataset_samples == 20_000_263
    sequences = capture_model(asked["model"], seq_len=16)
    assert sequences.seq_len == 16


def test_convolutions_of_ones_own_are_trained_by_momentum(tmp_path: Path) -> None:
    (tmp_path / "convs.py").write_text(CONVS)
    asked = {"model": f"{tmp_path / 'convs.py'}:build", "device": "T4", "dataset": "cifar10"}
    workload = Request.of(asked).resolve().workload
    assert (workload.optimizer, workload.dataset_samples) == ("momentum-sgd", 50_000)


COMMANDS = (
    "predict", "run --epochs 1", "layout", "sensitivity", "explain", "plan --epochs 1", "precisions advise",
    "precisions search", "architectures", "measure",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_alone_is_never_run(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n{CONVS}")
    with pytest.raises(SystemExit) as done:
        main([*command.split(), str(script)])
    said = capsys.readouterr().err
    assert done.value.code == 2 and not (tmp_path / "ran").exists()
    assert "file.py:object" in said and f"{script}:build" in said


@pytest.mark.parametrize("field", ["model", "forward", "loss", "reference"])
def test_no_field_runs_a_file_alone(field: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n{CONVS}")
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())
    asked = {"model": module, field: str(script)} | ({"method": "dpo"} if field == "reference" else {})
    with pytest.raises(ConfigError):
        Request.of(asked).resolve()
    assert not (tmp_path / "ran").exists()


def test_what_a_module_returns_is_told() -> None:
    class Words(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)

        def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": self.head(self.table(ids))}

    logits = capture_model(Words(), seq_len=8)
    assert "cross entropy over its tokens" in logits.notes
    priced = capture_model(Words(), seq_len=8, loss=lambda output: output["logits"].square().mean())
    assert "cross entropy" not in priced.notes
    assert "returns a tensor [B,4] and no loss" in capture_model(nn.Linear(8, 4)).notes
    target = capture_model(nn.Linear(8, 4), loss=nn.functional.cross_entropy)
    assert len(target.nodes) > 1 and "no loss" not in target.notes


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch.export warns about itself
def test_evaluation_mode_is_told() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.1))
    example = torch.zeros(2, 3, 8, 8)
    assert capture_model(net, example_inputs=example).warnings == ""
    assert "train()" in capture_model(net.eval(), example_inputs=example).warnings
    assert "train()" in capture_model(torch.export.export(net, (example,))).warnings
    assert capture_model(torch.export.export(net.train(), (example,))).warnings == ""


def test_another_batch_does_not_capture_again(nets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def counted(source: object, **options: object) -> object:
        calls.append(source)
        return capture_model(source, **options)

    monkeypatch.setattr(remembered, "capture_model", counted)
    module = nn.Linear(8, 4)
    for model in (nets, module):
        for batch in (1, 2, 4):
            workload_of(Request.of({"model": model, "batch_size": batch}))
    assert len(calls) == 2
    module.weight.requires_grad_(False)
    assert workload_of(Request.of({"model": module})).graph.trainable_params == 4  # noticed
    Path(nets.removesuffix(":Gpt")).write_text(NETS.replace("layers=2", "layers=3"))
    assert workload_of(Request.of({"model": nets})).graph.params > capture_model(module).params
    assert len(calls) == 4


def test_without_torch_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = """
import sys; sys.modules['torch'] = None
from precision_time.cli.main import main
for words in sys.argv[1:]:
    try:
        main(words.split())
    except SystemExit as done:
        print(words, done.code)
"""
    (tmp_path / "net.py").write_text(CONVS)
    for name in ("net.onnx", "net.pt2"):
        (tmp_path / name).touch()
    models = ("net.py:build", "net:build", "net.onnx", "net.pt2", "nowhere.onnx", "nowhere.pt2", "starnet_s1")
    asked = [*(f"predict {model}" for model in models), "explain net.pt2"]
    done = subprocess.run(
        [sys.executable, "-c", code, *asked],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.stdout.splitlines() == [f"{words} 2" for words in asked]
    errors = done.stderr.strip().splitlines()
    assert len(errors) == len(asked)
    assert all("pip install 'precision-time[capture]'" in line for line in errors)
