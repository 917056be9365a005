"""capture_model: every kind of source, against published and hand-counted figures."""

from __future__ import annotations

import contextlib
import csv
import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from precision_time.capture import huggingface as hf
from precision_time.capture.sources import capture_model
from precision_time.capture.timm_models import import_timm
from precision_time.errors import (
    CaptureError,
    ConfigError,
    UnknownNameError,
)
from precision_time.workload.graph import graph_to_json
from precision_time.workload.zoo import load_zoo_graph

PUBLISHED = Path(__file__).parents[1] / "workload" / "published_vision.csv"


def published():
    with PUBLISHED.open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


@pytest.fixture(scope="module")
def timm():
    return import_timm()


@pytest.fixture(scope="module")
def transformers():
    return hf.import_transformers()


def small_net():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5))


SMALL_MACS = 36 * 8 * 27 + 288 * 5


LIVE = ("resnet18", "mobilenetv2_100", "vit_base_patch32_224")  # all others: test_zoo.py, on stored graphs


@pytest.mark.parametrize("row", [r for r in published() if r["model"] in LIVE], ids=lambda row: row["model"])
@pytest.mark.usefixtures("timm")
def test_published_figures(row):
    graph = capture_model(row["model"], image_size=int(row["image_size"]))
    assert graph.params / 1e6 == pytest.approx(float(row["params_m"]), rel=0.01)
    assert graph.forward_flops / 2e9 == pytest.approx(float(row["gmacs"]), rel=0.01)
    assert graph.params == sum(n.param_elems * n.repeat for n in graph.nodes)
    assert graph.param_tensors == sum(n.param_tensors * n.repeat for n in graph.nodes)
    assert graph.image_size == int(row["image_size"])
    assert not graph.unpriced


def test_module_at_any_example_batch():
    graphs = [capture_model(small_net(), example_inputs=torch.zeros(b, 3, 8, 8)) for b in (1, 4)]
    assert graphs[0].nodes == graphs[1].nodes
    assert graphs[0].forward_flops == 2 * SMALL_MACS


def test_keyword_arguments():
    graph = capture_model(nn.Linear(8, 4), example_inputs={"input": torch.zeros(3, 8)})
    assert graph.forward_flops == 2 * 32


def test_function_that_returns_module_and_inputs(tmp_path, monkeypatch):
    (tmp_path / "their_net.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(8, 4), (torch.zeros(2, 8),)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    graph = capture_model("their_net:make")
    assert (graph.params, graph.forward_flops) == (36, 64)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch.export warns about itself
def test_exported_program_equals_the_module(tmp_path):
    example = torch.zeros(2, 3, 8, 8)
    program = torch.export.export(small_net(), (example,))
    torch.export.save(program, tmp_path / "net.pt2")
    module = capture_model(small_net(), example_inputs=example)
    graph = capture_model(tmp_path / "net.pt2", trust=True, name="net")
    assert graph.forward_flops == module.forward_flops
    assert graph.params == module.params
    assert graph.saved_elems == module.saved_elems
    assert graph == capture_model(program, name="net")  # layers and all, through the process of its own


def test_an_exported_program_is_loaded_only_when_trusted_and_never_here(tmp_path, monkeypatch):
    ran = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {ran}",)

    path = tmp_path / "evil.pt2"
    torch.save(Evil(), path)

    def here(*_, **__):
        raise AssertionError("loaded in this process")

    monkeypatch.setattr("torch.export.load", here)
    with pytest.raises(CaptureError, match="can run code.*--trust"):
        capture_model(path)
    assert not ran.exists()
    with pytest.raises(CaptureError, match="not a torch.export program that can be captured"):
        capture_model(path, trust=True)


ODD_ONNX = {
    "cyclic": ([("Add", ["x", "z"], ["y"], {}), ("Relu", ["y"], ["z"], {})], "nothing before it produces"),
    "a missing input": ([("Add", ["x", "nowhere"], ["y"], {})], "'nowhere'"),
    "no group": ([("Conv", ["x", "w"], ["y"], {"group": 0})], "group=0|ONNX model"),
    "an operator without inputs": ([("Conv", [], ["y"], {})], "ONNX model"),
    "no hidden size": ([("LSTM", ["x", "w", "w"], ["y"], {})], "ONNX model|could not be inferred"),
    "views only": ([("Identity", ["x"], ["y"], {})], "nothing to predict"),
}


@pytest.mark.parametrize("case", ODD_ONNX)
def test_onnx_graphs_that_cannot_run_are_refused(tmp_path, case):
    import onnx

    make, kinds = onnx.helper, onnx.TensorProto
    nodes, named = ODD_ONNX[case]
    graph = make.make_graph(
        [make.make_node(op, reads, writes, **attributes) for op, reads, writes, attributes in nodes],
        "net",
        [make.make_tensor_value_info("x", kinds.FLOAT, [4, 3, 8, 8])],
        [make.make_tensor_value_info("y", kinds.FLOAT, [4, 3, 8, 8])],
        [make.make_tensor("w", kinds.FLOAT, [3, 3, 1, 1], bytes(36), raw=True)],
    )
    onnx.save(make.make_model(graph), tmp_path / "net.onnx")
    with pytest.raises(CaptureError, match=named) as caught:
        capture_model(tmp_path / "net.onnx")
    assert "To fix" in str(caught.value)


@pytest.mark.parametrize("shape", [[-4, 3, 8, 8], ["N", -3, 8, 8], ["N", 2**60, 2**60, 2**60]])
def test_onnx_sizes_that_are_not_possible_are_refused(tmp_path, shape):
    import onnx

    make, kinds = onnx.helper, onnx.TensorProto
    ends = [make.make_tensor_value_info(name, kinds.FLOAT, shape) for name in ("x", "y")]
    graph = make.make_graph([make.make_node("Relu", ["x"], ["y"])], "net", ends[:1], ends[1:])
    onnx.save(make.make_model(graph), tmp_path / "net.onnx")
    with pytest.raises(CaptureError, match="To fix"):
        capture_model(tmp_path / "net.onnx")


def onnx_net(path, batch):
    import onnx

    make, kinds = onnx.helper, onnx.TensorProto

    def weights(name, *dims):
        return make.make_tensor(name, kinds.FLOAT, dims, bytes(4 * torch.Size(dims).numel()), raw=True)

    nodes = [
        make.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3]),
        make.make_node("BatchNormalization", ["c", "s", "b", "mean", "var"], ["n"]),
        make.make_node("Relu", ["n"], ["r"]),
        make.make_node("Flatten", ["r"], ["f"]),
        make.make_node("Gemm", ["f", "v", "u"], ["y"], transB=1),
    ]
    graph = make.make_graph(
        nodes,
        "net",
        [make.make_tensor_value_info("x", kinds.FLOAT, [batch, 3, 8, 8])],
        [make.make_tensor_value_info("y", kinds.FLOAT, [batch, 5])],
        [weights("w", 8, 3, 3, 3), weights("v", 5, 288), weights("u", 5)]
        + [weights(name, 8) for name in ("s", "b", "mean", "var")],
    )
    onnx.save(make.make_model(graph), path)


@pytest.mark.parametrize("batch", ["N", 4])
def test_onnx_file(tmp_path, batch):
    onnx_net(tmp_path / "net.onnx", batch)
    graph = capture_model(tmp_path / "net.onnx")
    assert graph.forward_flops == 2 * SMALL_MACS
    assert graph.params == 8 * 27 + 16 + 288 * 5 + 5
    assert [n.op for n in graph.nodes] == ["convolution", "native_batch_norm", "relu", "addmm"]


def test_truncated_files_are_refused(tmp_path):
    onnx_net(tmp_path / "net.onnx", "N")
    whole = (tmp_path / "net.onnx").read_bytes()
    for name in ("cut.onnx", "cut.pt2"):
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(CaptureError, match="To fix"):
            capture_model(tmp_path / name)
    with pytest.raises(CaptureError, match="no file"):
        capture_model(tmp_path / "nothing.onnx")


LLAMA_70B = {
    "model_type": "llama",
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "vocab_size": 32000,
}


BACKBONES = [
    {"model_type": "detr", "backbone": "someone/their-backbone", "use_timm_backbone": False},
    {
        "model_type": "detr",
        "backbone": "resnet18",
        "use_timm_backbone": True,
        "use_pretrained_backbone": True,
    },
]


@pytest.mark.usefixtures("transformers")
@pytest.mark.parametrize("config", BACKBONES)
def test_no_configuration_reaches_the_network(tmp_path, monkeypatch, config):
    asked = []

    def reach(*where, **_):
        asked.append(where)
        raise OSError("no network in tests")

    monkeypatch.setattr("socket.getaddrinfo", reach)
    monkeypatch.setattr("socket.create_connection", reach)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with contextlib.suppress(CaptureError):
        capture_model(tmp_path / "config.json", image_size=64)
    assert asked == []


@pytest.mark.usefixtures("transformers")
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_hidden_layers": 10**7}, "num_hidden_layers"),
        ({"num_labels": 10**8}, "num_labels"),
        ({"hidden_size": -64}, "hidden_size"),
        ({"hidden_size": "64"}, "To fix"),
        ({"num_attention_heads": 0}, "To fix"),
        ({"architectures": 3}, "To fix"),
        ({"image_size": "big"}, "To fix"),
    ],
)
def test_configurations_of_odd_values_are_refused(tmp_path, changes, named):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit", **changes}))
    with pytest.raises(CaptureError, match=named):
        capture_model(tmp_path / "config.json")


@pytest.mark.usefixtures("transformers")
def test_llama_70b_by_hand(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_70B))
    tokens = 2048
    graph = capture_model(tmp_path / "config.json", seq_len=tokens)
    layer = 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672
    params = 80 * (layer + 2 * 8192) + 8192 + 2 * 32000 * 8192
    assert graph.params == params == pytest.approx(68.98e9, rel=1e-4)
    attention = 80 * 4 * tokens * tokens * 8192
    assert graph.forward_flops == 2 * tokens * (80 * layer + 32000 * 8192) + attention
    assert sum(n.param_elems * n.repeat for n in graph.nodes) == params
    assert graph.param_tensors == 80 * 9 + 3
    assert len(graph.nodes) < 100
    assert graph.seq_len == tokens


def test_extrapolated_layers_equal_built_ones(transformers):
    config = transformers.GPT2Config(n_embd=64, n_head=4, n_layer=8, vocab_size=100)
    short = capture_model(config, seq_len=32)
    sizes = hf.HfSizes.choose(config, 32, None)
    full = hf.capture_hf_module(hf.build_config(config), sizes, "full")
    assert len(short.nodes) < len(full.nodes) / 3
    assert short.forward_flops == full.forward_flops
    assert short.saved_elems == full.saved_elems
    assert (short.params, short.param_tensors) == (full.params, full.param_tensors)
    assert sum(n.repeat for n in short.nodes) == len(full.nodes)


def test_layers_of_two_kinds_are_all_built(transformers):
    config = transformers.Qwen3MoeConfig(
        hidden_size=32, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=48, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2, vocab_size=64,
        mlp_only_layers=[4, 5],
    )  # fmt: skip
    graph = capture_model(config, seq_len=16)
    attention = 32 * 32 * 2 + 2 * 32 * 16 + 2 * 8 + 2 * 32
    sparse, dense = 32 * 4 + 4 * 3 * 32 * 16, 3 * 32 * 48
    assert graph.params == 6 * attention + 4 * sparse + 2 * dense + 32 + 2 * 64 * 32
    expert_macs = 16 * 2 * 3 * 32 * 16
    experts = [n for n in graph.nodes if n.op == "_grouped_mm"]
    assert sum(n.flops for n in experts) == 4 * 2 * expert_macs


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        ("resnet5O", {}, UnknownNameError, "resnet50"),
        ("nosuch:thing", {}, CaptureError, "cannot be imported"),
        ("sys:exit", {}, CaptureError, "raised SystemExit"),
        (3, {}, CaptureError, "int cannot be captured"),
        ("resnet50", {"image_size": -224}, ConfigError, "image_size=-224"),
    ],
)
@pytest.mark.usefixtures("timm", "transformers")
def test_errors_name_value_and_way_out(source, options, error, message):
    with pytest.raises(error, match=message) as caught:
        capture_model(source, **options)
    assert "To fix" in str(caught.value)


def test_module_that_does_not_say_what_it_takes():
    with pytest.raises(CaptureError, match="example_inputs"):
        capture_model(small_net())


@pytest.mark.usefixtures("timm")
@pytest.mark.parametrize("name", ["resnet18", "deit_tiny_patch16_224", "efficientnet_b0_gn"])
def test_stored_graphs_are_what_is_captured_now(name):
    stored, live = load_zoo_graph(name), capture_model(name)
    assert graph_to_json(stored)["bodies"] == graph_to_json(live)["bodies"]
    assert graph_to_json(stored)["sequence"] == graph_to_json(live)["sequence"]
