"""What the fuzzers ask: requests made of the fields of `Request`, values of the wrong type, broken files.

A new field of a request is asked as soon as it exists, with values made of its type and limits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st

from precision_time.cost.stacks import known_stacks
from precision_time.hardware.device_table import known_devices
from precision_time.precision.catalog import known_precisions
from precision_time.request.schema import RequestFields
from precision_time.workload.resolve import model_names

Fields = dict[str, Any]

COUNTS = (1, 1, 2, 2, 3, 4, 5, 7, 8, 8, 12, 16, 32, 64, 100, 512, 4096, 10**5, 10**7)
NUMBERS = (5e-324, 1e-9, 0.1, 0.5, 1.0, 1.5, 7.0, 64.0, 1e3, 2024.5, 1e6, 1e9, 1e15)
WORDS = (
    "",
    "none",
    "auto",
    "x" * 300,
    "a\x1b[31mb",
    "é",
    "../..",
    "*",
    "1,2",
    "all",
    "=cmd",
    "\x00",
    "mixed",
)
NAMED: Mapping[str, Sequence[Any]] = {
    "device": [device.name for device in known_devices()]
    + ["8xA100", "2x8xH100", "p5.48xlarge", "tpu", "cpu"],
    "precision": [*known_precisions(), "FP16", "amp", "int8", "fp8:delayed", "mixed_bfloat16"],
    "stack": list(known_stacks()),
    "reference": ["resnet50", "gpt2", "llama2-7b", "nothing"],
    "teacher": ["bert-large", "gpt2-xl", "nothing"],
    "node_type": ["DGX-A100", "p4d.24xlarge", "dgx-h100", "a2-highgpu-8g", "my-host"],
    "intra_node": ["nvlink3+nvswitch", "pcie4", "nvlink4", "pcie99", "nothing"],
    "inter_node": ["ib-hdr-200g x8", "ethernet-50g", "ethernet-0g", "ib-ndr-400g x9999999999"],
    "network": ["100g-tcp", "400g-ib", "efa-400g", "8x400g-ib", "0g", "1e400g-ib"],
    "optimizer": ["sgd", "adamw", "lamb", "adafactor", "muon", "lion", "none"],
    "framework": ["pytorch", "tensorflow", "jax", "mxnet"],
    "dataset": ["imagenet", "squad1.1", "coco2017", "openwebtext", "nothing"],
    "task": ["squad-finetune", "lora", "glue", "", "qlora"],
    "lora_targets": ["q,v", "all-linear", "q_proj", "q,k,v,o,gate,up,down", ","],
    "freeze": ["backbone", "embeddings", "encoder", "layers:2", "layers:9999", "layers:-1", "*", "x.*"],
    "recompute": ["none", "selective", "full", "full:0.5", "full:16", "full:-1", "full:1e400", "full:"],
    "rank_order": ["tp-cp-dp-pp", "dp-tp", "tp,tp", "pp-dp-cp-tp", "x"],
    "stage_layers": ["7,8x14,7", "1", "0", "2x16", "1x999999999999", "8,8,8,8", "x", "-1"],
    "inputs": [["ids:int64[B,512]"], ["float32[B,3,32,32]"], ["x:int64[999999999999]"], ["["]],
    "forward": ["training_step", ""],
    "loss": ["my_package.losses:mine"],
    "custom": ["cluster.toml", "no-such-file.toml", "/", "/dev/null"],
    "calibration": ["no-such-file.json", "/", "/dev/null", {}, {"factor": 1}],
    "anchors": [
        [{"step_time_s": 0.2}],
        [{"step_time_s": 1e-300}, {"step_time_s": 1e300, "gpus": 4}],
        ["batch_size=4,step_time_s=0.5"],
        [{"samples_per_s": 100, "precision": "fp32"}],
        [{"step_time_s": float("nan")}],
        "gpus=",
    ],
    "sizes": [
        {"hidden": 2048},
        {"layers": 3},
        {"heads": 7},
        {"vocab": 10**8},
        {"hidden": 64, "layers": 2, "heads": 4},
        {"hidden": 10**9},
        {"layers": 10**7},
        {"experts": 8, "experts_per_token": 2},
        {"kv_heads": 3},
        {"ffn": 1},
        {"params": 1e9},
        {"nothing": 1},
        {"seq_len": 2**40},
        {"window": 1},
        {"hidden": "x"},
        {"hidden": [1]},
        {"hidden": True},
        {"hidden": 1.5},
        {"layers": float("nan")},
        {1: 2},
    ],
}
MODELS = [
    *("resnet50", "bert-large", "gpt2", "gpt2-xl", "llama2-7b", "llama3-70b", "mixtral-8x7b", "deepseek-v3"),
    *(
        "vit_base_patch16_224",
        "t5-small",
        "dlrm",
        "unet",
        "whisper-small",
        "stable-diffusion",
        "mobilenetv2_100",
    ),
    *(
        "gpt-h1024-l24",
        "gpt-99999999999x9",
        "gpt-h1-l1",
        "llama3-70b-qlora",
        "bert-base-uncased-lora",
        "gpt-h0-l4",
    ),
]
ODD_MODELS = (
    "nothing",
    "",
    " ",
    "a" * 3000,
    "os:abort",
    "builtins:print",
    "../x.py",
    "net.py:missing",
    "x.onnx",
    "x.pt2",
    "/",
    "/dev/null",
    "\x1b[31mresnet",
    "resnet50,gpt2",
    "{}",
    "a\x00b",
    "\ud800",
    "config.json",
    "1e9",
    "-1",
    "llama",
)


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of a type: most of them what a user would say, some at the ends."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return values_of(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return st.one_of(*(values_of(each) for each in get_args(annotation) if each is not NoneType))
    if origin is Literal:
        return st.sampled_from(get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return st.sampled_from([each.value for each in annotation])
    choices = {bool: (True, False), int: COUNTS, float: (*NUMBERS, *COUNTS)}
    return st.sampled_from(choices.get(annotation, WORDS))


def _plausible(name: str, annotation: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(NAMED[name]) if name in NAMED else values_of(annotation)


OPTIONS = {
    name: _plausible(name, info.annotation)
    for name, info in RequestFields.model_fields.items()
    if name not in ("model", "example_inputs", "cluster", "trust")
}
models = st.one_of(st.sampled_from(MODELS), st.sampled_from(MODELS), st.sampled_from(model_names()))

junk_numbers = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([0, -1, 2**63, 10**400, -(10**30), 5e-324, 1e308, float("inf"), float("nan"), -0.0]),
)
junk_leaves = st.one_of(
    *(
        st.none(),
        st.booleans(),
        junk_numbers,
        st.text(max_size=12),
        st.sampled_from(WORDS),
        st.binary(max_size=4),
    ),
    st.sampled_from(["8k", "1e999", "16..4", "16..", "1..1e15:1", "8,16,", "nan", "-inf", "0x10", "１２"]),
)
junk = st.recursive(
    junk_leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
plain_junk = st.deferred(lambda: junk.filter(_is_jsonable))


def _is_jsonable(value: Any) -> bool:
    try:
        json.dumps(value).encode()
    except (TypeError, ValueError):
        return False
    return True


@st.composite
def requests(draw: st.DrawFn) -> Fields:
    """Fields with values of the right type: usual ones that fit together, and up to two of all the others."""
    gpus = draw(st.sampled_from([1, 1, 2, 4, 8, 8, 16, 24, 64, 256, 1024, 10**5]))
    degrees = st.sampled_from([1, 2, 4, 8])
    usual: dict[str, st.SearchStrategy[Any]] = {
        "device": st.sampled_from(NAMED["device"]),
        "precision": st.sampled_from(known_precisions()),
        "gpus": st.just(gpus),
        "batch_size": st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128, 1000]),
        "tp": degrees.filter(lambda degree: gpus % degree == 0),
        "pp": degrees.filter(lambda degree: gpus % degree == 0),
        "zero_stage": st.integers(0, 3),
        "num_microbatches": degrees,
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "stack": OPTIONS["stack"],
    }
    names = draw(st.lists(st.sampled_from(sorted(usual)), max_size=5, unique=True))
    fields = {"model": draw(models), **{name: draw(usual[name]) for name in names}}
    if draw(st.booleans()):
        for name in draw(st.lists(st.sampled_from(sorted(OPTIONS)), max_size=2, unique=True)):
            fields[name] = draw(OPTIONS[name])
    return fields


@st.composite
def wrong_requests(draw: st.DrawFn, values: st.SearchStrategy[Any] = junk) -> Fields:
    """Fields of which one to three hold anything."""
    fields = draw(requests())
    names = [*OPTIONS, "model", "trust", "example_inputs", "cluster", "nothing", "layout"]
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)):
        odd = st.one_of(values, st.sampled_from(ODD_MODELS)) if name == "model" else values
        fields[name] = draw(odd)
    return fields


@st.composite
def broken(draw: st.DrawFn, text: bytes) -> bytes:
    """The bytes of a file, with some of them changed, cut, repeated or replaced by what breaks readers."""
    data = bytearray(text)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        size = draw(st.sampled_from([0, 1, 2, 8, 64]))
        data[at : at + size] = draw(
            st.one_of(
                st.binary(max_size=4),
                st.sampled_from(
                    [
                        b"",
                        b"\x00",
                        b"\xff\xfe",
                        b"\n",
                        b"-1",
                        b"1e400",
                        b"NaN",
                        b"null",
                        b'"',
                        b"[",
                        b"{",
                        b": ",
                        b"999999999999999999999",
                        b"\x1b[2J",
                        b"&a [*a]",
                        b"!!python/object:os.system",
                        b"=1+1",
                        b",,",
                    ]
                ),
            )
        )
    return bytes(data)


def replaced(value: Any, path: Sequence[Any], new: Any) -> Any:
    """A nested value with one part replaced."""
    if not path:
        return new
    if isinstance(value, Mapping):
        return {**value, path[0]: replaced(value[path[0]], path[1:], new)}
    return [*value[: path[0]], replaced(value[path[0]], path[1:], new), *value[path[0] + 1 :]]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every part of a nested value is."""
    inner = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    )
    return [path, *(place for key, part in inner for place in places(part, (*path, key)))]


@st.composite
def odd_documents(draw: st.DrawFn, document: Any) -> Any:
    """A nested value with one or two parts replaced by anything."""
    for _ in range(draw(st.integers(1, 2))):
        document = replaced(document, draw(st.sampled_from(places(document))), draw(junk))
    return document
