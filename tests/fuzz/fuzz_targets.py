"""What is fuzzed (what must hold is in `fuzz_promises.py`): see `docs/reference/limits.md`.

A target takes one input that a strategy made and returns whether it was answered. Whatever else than an error
of `precision_time.errors` it raises is a fault, as is an answer that breaks a promise.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

import fuzz_inputs as inputs
from fuzz_promises import LONGEST_MESSAGE, answered, check_answer, promise
from precision_time.cli.main import main
from precision_time.cli.request_options import request_and_others
from precision_time.corpus.own import read_own_steps
from precision_time.errors import PrecisionTimeError
from precision_time.hardware.custom import load_custom
from precision_time.planning.run.api import run_of
from precision_time.planning.run.schema import RunOptions
from precision_time.predict.api import predict, predict_time
from precision_time.request.files import read_jobs
from precision_time.request.sweep import PHASES, RUN
from precision_time.workload.hf_config import entry_of_config
from precision_time_integrations.inventory.file import read_inventory
from precision_time_integrations.inventory.slurm import read_slurm

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
EXIT_CODES = (0, 2, 3)
"""What a command line may end with that is not interrupted; 70, an unforeseen error, is a fault."""


class Target(NamedTuple):
    """One way into the package, and what is sent through it."""

    name: str
    what: str
    inputs: st.SearchStrategy[Any]
    run: Callable[[Any, Path], None]
    """Gets an input and a folder; raises what the package raises."""
    share: float
    """Of the inputs of a run, relative to the others."""
    heavy: bool = False
    """Loads libraries for seconds: left out of the tests, not of `tests/fuzz/fuzz.py`."""

    def try_(self, given: Any, folder: Path) -> bool:
        """Whether an input is answered; what must hold is checked."""
        return answered(lambda: self.run(given, folder))


def _ask(fields: Mapping[str, Any], _: Path) -> None:
    check_answer(predict_time(**{str(name): value for name, value in fields.items()}))


def _ask_file(path: Path) -> None:
    for job in read_jobs(path)[:3]:
        for request in job.requests()[:3]:
            check_answer(predict(request))


def _ask_run(path: Path) -> None:
    request, beside = request_and_others(str(path), {}, (PHASES, RUN))
    found = run_of(request, RunOptions.of(beside.get(RUN) or {}), beside.get(PHASES))
    promise(found.interval.low_s <= found.total_s <= found.interval.high_s < math.inf, "finite, in order")
    promise(abs(math.fsum(found.terms.values()) / found.total_s - 1.0) < 1e-9, "a sum of its terms")


def run_command(words: Sequence[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command line."""
    out, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(told):
        try:
            main(words)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
    return code, out.getvalue(), told.getvalue()


def _command(words: Sequence[str], _: Path) -> None:
    code, out, told = run_command(words)
    promise(code in EXIT_CODES, f"exit code {code} of {words}: {told[-600:]}")
    promise(all(c.isprintable() or c in "\n\t" for c in out + told), "no control characters")
    promise(len(told) <= 2 * LONGEST_MESSAGE, "a short message")
    promise("Traceback" not in told, "no traceback")
    if code == 2 and not out:
        raise PrecisionTimeError(told[:LONGEST_MESSAGE])
    if "--json" in words and "-h" not in words and code in (0, 3):  # help is text
        json.loads(out, parse_constant=lambda word: promise(False, f"{word} is no JSON"))


def _jsonable(value: Any) -> str:
    return json.dumps(value, default=str)


@cache
def _documents() -> dict[str, Any]:
    """Small valid files of every format that is read."""
    import tomllib

    import yaml

    found = {path.name: path.read_bytes() for path in EXAMPLES.iterdir() if path.suffix != ".py"}
    parsed: dict[str, Any] = {}
    for name, text in found.items():
        if name.endswith(".yaml"):
            parsed[name] = yaml.safe_load(text)
        elif name.endswith(".toml"):
            parsed[name] = tomllib.loads(text.decode())
    return {"bytes": found, "parsed": parsed}


def _example(name: str) -> bytes:
    return bytes(_documents()["bytes"][name])


def _file_of(name: str) -> st.SearchStrategy[bytes]:
    """An example file with broken bytes, or with a value replaced by another."""
    odd = inputs.broken(_example(name))
    if name in _documents()["parsed"] and name.endswith(".yaml"):
        return odd | inputs.odd_documents(_documents()["parsed"][name]).map(_dumped)
    return odd


def _dumped(document: Any) -> bytes:
    """A document as JSON, which YAML holds; what JSON lacks as text."""
    return _jsonable_keys(document).encode("utf-8", "replace")


def _jsonable_keys(document: Any) -> str:
    return json.dumps(document, default=str, skipkeys=True)


def _of_bytes(suffix: str, read: Callable[[Path], Any]) -> Callable[[bytes, Path], None]:
    """Writes the bytes to a file and reads it."""

    def run(given: bytes, folder: Path) -> None:
        path = folder / f"input{suffix}"
        path.write_bytes(given)
        os.utime(path, ns=(next(_CLOCK), next(_CLOCK)))  # readers remember a file by its time
        read(path)

    return run


_CLOCK = iter(range(10**18, 2 * 10**18, 10**6))


def _job_file(given: tuple[str, bytes], folder: Path) -> None:
    suffix, text = given
    _of_bytes(suffix, _ask_file)(text, folder)


def _toml_text(document: Mapping[str, Any]) -> str:
    """A flat table as TOML, values as JSON writes them; close enough for a reader that must bear anything."""
    return "".join(f"{json.dumps(str(name))} = {_jsonable_keys(value)}\n" for name, value in document.items())


def _csv_text(document: Mapping[str, Any]) -> str:
    import csv

    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([str(name) for name in document])
    cells = [value if isinstance(value, str) else _jsonable_keys(value) for value in document.values()]
    writer.writerow([cell.replace("\x00", "") for cell in cells])
    return text.getvalue()


_WRITERS: Mapping[str, Callable[[Any], str]] = {
    ".yaml": _jsonable_keys,
    ".json": _jsonable_keys,
    ".jsonl": _jsonable_keys,
    ".toml": _toml_text,
    ".csv": _csv_text,
}


@st.composite
def job_files(draw: st.DrawFn) -> tuple[str, bytes]:
    """A job in a file of any kind, right, wrong, or with broken bytes."""
    suffix = draw(st.sampled_from(sorted(_WRITERS)))
    fields = draw(inputs.requests() | inputs.wrong_requests())
    text = _WRITERS[suffix](fields).encode("utf-8", "replace")
    return suffix, draw(st.just(text) | inputs.broken(text))


CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}
MOE = {
    **CONFIG,
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "mlp_only_layers": [],
    "decoder_sparse_step": 1,
    "head_dim": 32,
    "layer_types": ["full_attention"] * 4,
}
WINDOWED = {
    **CONFIG,
    "model_type": "gemma2",
    "sliding_window": 128,
    "head_dim": 32,
    "layer_types": ["full_attention", "sliding_attention"] * 2,
}
BERT = {
    "model_type": "bert",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 1000,
    "max_position_embeddings": 128,
}


def configs(*known: Mapping[str, Any]) -> st.SearchStrategy[bytes]:
    """A config.json with parts replaced by anything, or with broken bytes."""
    return st.one_of(
        *(inputs.odd_documents(dict(one)).map(_dumped) for one in known),
        *(inputs.broken(json.dumps(one).encode()) for one in known[:1]),
    )


def _ask_config(path: Path) -> None:
    entry_of_config(str(path))  # what it refuses would be handed to transformers: see `_ask_model`
    _ask_model(path)


def _ask_model(path: Path) -> None:
    check_answer(predict_time(str(path), batch_size=1))


def _ask_custom(path: Path) -> None:
    custom = load_custom(path)
    for node in [*custom.node_types.values()][:2]:
        check_answer(predict_time("resnet50", custom=path, node_type=node.name, gpus=8, batch_size=4))
    for device in [*custom.devices.values()][:2]:
        check_answer(predict_time("resnet50", custom=path, device=device.name, gpus=2, batch_size=4))


def _ask_cluster(path: Path) -> None:
    check_answer(predict_time("resnet50", cluster=read_inventory(path), batch_size=4))


SINFO = b"""NODELIST STATE GRES CPUS MEMORY FEATURES
gpu[01-04] idle gpu:a100:8(S:0-1) 128 1031000 nvlink
gpu[05,07] mix gpu:v100:4 64 515000 (null)
cpu01 down* (null) 64 257000 (null)
"""
SCONTROL = b"""NodeName=gpu01 Arch=x86_64 CoresPerSocket=64
   CPUTot=128 ActiveFeatures=nvlink Gres=gpu:a100:8
   State=IDLE RealMemory=1031000
NodeName=gpu02 Arch=x86_64 CPUTot=128 Gres=gpu:a100:8 State=DRAIN RealMemory=1031000
"""


def _ask_slurm(path: Path) -> None:
    found = read_slurm(path.read_text(encoding="utf-8", errors="replace"))
    check_answer(predict_time("resnet50", cluster=found, batch_size=4))


def _measured(path: Path) -> None:
    from precision_time.learn.evaluation import evaluate_csv

    read_own_steps(path)
    report = evaluate_csv(path, group_by=["model"], rows_out=path.with_suffix(".out"))
    json.dumps(report.to_dict(), allow_nan=False)


@st.composite
def measured_files(draw: st.DrawFn) -> bytes:
    """Measured steps of which cells hold anything, or with broken bytes."""
    text = _example("runs.csv")
    if draw(st.booleans()):
        return draw(inputs.broken(text))
    import csv

    rows = [*csv.DictReader(io.StringIO(text.decode()))][:3]
    rows = [{**row, "config": "{}", "seq_len": "", "nodes": ""} for row in rows]
    odd = st.one_of(
        inputs.plain_junk.map(_jsonable_keys),
        st.sampled_from(
            ['{"tp":1e400}', '{"hidden":[1]}', "a" * 400, "1e308", "-1", "=cmd|' /C calc'!A0", "[", "1e-320"]
        ),
    )
    for _ in range(draw(st.integers(1, 2))):
        row = draw(st.sampled_from(rows))
        row[draw(st.sampled_from(sorted(row)))] = draw(odd)
    out = io.StringIO()
    writer = csv.DictWriter(out, [*rows[0]])
    writer.writeheader()
    writer.writerows({name: cell.replace("\x00", "") for name, cell in row.items()} for row in rows)
    return out.getvalue().encode("utf-8", "replace")


@cache
def _calibration() -> bytes:
    from precision_time.learn.artifact import shipped_predictor
    from precision_time.learn.calibration.fit import calibrate_file

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        calibrate_file(EXAMPLES / "runs.csv", shipped_predictor()).calibration.save(path)
        return path.read_bytes()


def _ask_calibrated(path: Path) -> None:
    check_answer(predict_time("resnet50", batch_size=64, calibration=path))


def _plan(path: Path) -> None:
    from precision_time_integrations.measure.plan import load_plan, select

    select(load_plan(path))


def _study(path: Path) -> None:
    from precision_time_papers.ray_models.schema import prepared, read_study

    prepared(read_study(path), EXAMPLES / "points.csv")


def _points(path: Path) -> None:
    from precision_time_papers.ray_models.schema import prepared, read_study

    prepared(read_study(EXAMPLES / "study.yaml"), path)


def _prices(path: Path) -> None:
    from precision_time.hardware.prices.reading import read_prices, written_table

    written_table(read_prices(path).offers)


def _campaign(path: Path) -> None:
    from precision_time_papers.campaign.campaign import load_campaign

    load_campaign(path)


def _batch(path: Path) -> None:
    from precision_time_papers.predictddl.requests import read_batch

    for item in read_batch(path):
        name = getattr(item, "name", "")
        promise(str(name).isprintable(), f"a printable name, not {name!r}")


@cache
def _onnx() -> bytes:
    """A model of two layers as ONNX."""
    from onnx import TensorProto, helper

    floats = TensorProto.FLOAT
    tensors = [
        helper.make_tensor(name, floats, shape, [0.0] * math.prod(shape))
        for name, shape in (("kernel", (4, 3, 3, 3)), ("weight", (64, 10)))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["y"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["y"], ["z"]),
        helper.make_node("GlobalAveragePool", ["z"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "weight"], ["out"], transB=0),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", floats, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("out", floats, ["batch", 10])],
        tensors,
    )
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


@st.composite
def onnx_files(draw: st.DrawFn) -> bytes:
    """An ONNX model with other attributes, shapes or inputs, or with broken bytes."""
    import onnx

    if draw(st.booleans()):
        return draw(inputs.broken(_onnx()))
    model = onnx.ModelProto.FromString(_onnx())
    graph = model.graph
    for _ in range(draw(st.integers(1, 3))):
        node = draw(st.sampled_from([*graph.node]))
        number = draw(st.sampled_from([-1, 0, 1, 2, 7, 2**31, 2**62]))
        what = draw(st.integers(0, 8))
        if what == 0:
            node.op_type = draw(
                st.sampled_from(["MatMul", "Add", "LSTM", "Attention", "Loop", "", "Softmax", "Reshape"])
            )
        elif what == 1 and node.input:
            node.input[draw(st.integers(0, len(node.input) - 1))] = draw(
                st.sampled_from(["", "x", "out", "nothing"])
            )
        elif what == 2:
            del node.input[:]
        elif what == 3:
            node.attribute.extend(
                [
                    onnx.helper.make_attribute(
                        draw(st.sampled_from(["group", "hidden_size", "axis", "transA"])), number
                    )
                ]
            )
        elif what == 4:
            node.attribute.extend(
                [
                    onnx.helper.make_attribute(
                        draw(st.sampled_from(["strides", "pads", "dilations", "kernel_shape"])), [number]
                    )
                ]
            )
        elif what == 5:
            dims = graph.input[0].type.tensor_type.shape.dim
            dims[draw(st.integers(0, len(dims) - 1))].dim_value = number
        elif what == 6:
            tensor = graph.initializer[draw(st.integers(0, len(graph.initializer) - 1))]
            tensor.dims[draw(st.integers(0, len(tensor.dims) - 1))] = number
        elif what == 7:
            del getattr(graph, draw(st.sampled_from(["input", "output", "initializer", "node"])))[:]
            if not graph.node:
                break
        else:
            node.output[0] = draw(st.sampled_from(["x", "out", "y", ""]))
        if not graph.input or not graph.initializer:
            break
    return bytes(model.SerializeToString())


def _refuse_pt2(path: Path) -> None:
    for source in (path, path.name):
        with contextlib.suppress(PrecisionTimeError):
            predict_time(str(source), batch_size=1)
            promise(False, "a .pt2 file is not loaded unasked")


def _model_file(path: Path) -> None:
    from precision_time_papers.ray_models.model import PerformanceModel

    PerformanceModel.load(path)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Words of a command line: options of `predict` with fitting and odd values, or any words."""
    words = [draw(st.sampled_from([*["predict"] * 8, "explain", "layout"]))]
    if words[0] == "layout":
        words += [
            draw(st.sampled_from(["gpt2", "resnet50", "gpt-h1024-l24"])),
            "-g",
            draw(st.sampled_from(["2", "4", "8"])),
        ]
    else:
        fields = draw(inputs.requests() | inputs.wrong_requests(inputs.junk_leaves))
        words += [_word(fields.pop("model"))]
        for name, value in fields.items():
            flag = f"--{name.replace('_', '-')}".encode("utf-8", "replace").decode()
            if isinstance(value, bool):
                words.append(flag if value else f"--no-{flag[2:]}")
            elif name == "sizes" and isinstance(value, Mapping):
                words += [word for key, size in value.items() for word in ("--size", f"{key}={size}")]
            else:
                values = value if isinstance(value, list) else [value]
                words += [word for each in values for word in (flag, _word(each))]
    words += draw(
        st.lists(st.sampled_from(["--json", "--why", "--brief", "--sort", "time", "--baseline"]), max_size=2)
    )
    if draw(st.integers(0, 9)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(st.text(max_size=6)))
    if draw(st.integers(0, 19)) == 0:
        words = [
            draw(st.sampled_from([*QUICK, "nothing"])),
            *draw(st.lists(st.text(max_size=8) | st.sampled_from(FLAGS), max_size=4)),
        ]
    return [word.replace("\x00", "") for word in words]


QUICK = ("list", "devices", "precisions", "stacks", "schema", "glossary")
FLAGS = ("--json", "--search", "A100", "resnet", "-h", "--version", "jobs", "hardware", "--debu", "--", "-")


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}={item}" for name, item in value.items())
    return str(value)


def targets() -> list[Target]:
    """Every way in, with its share of a run."""
    return [
        Target("calls", "Python calls, values of the right type", inputs.requests(), _ask, 45),
        Target("calls-wrong", "Python calls, anything in some fields", inputs.wrong_requests(), _ask, 15),
        Target("command-line", "command lines", command_lines(), _command, 12),
        Target("job-files", "job files: YAML, TOML, JSON, JSON lines, CSV", job_files(), _job_file, 8),
        _bytes_target("runs", "job files with phases", ".yaml", _file_of("run.yaml"), _ask_run, 1),
        _bytes_target("config-json", "config.json of Hugging Face", ".json", _configs(), _ask_config, 5),
        _bytes_target(
            "config-built", "the same, built by transformers", ".json", _berts(), _ask_model, 0.5, True
        ),
        _bytes_target("onnx", "ONNX models", ".onnx", onnx_files(), _ask_model, 1.5),
        _bytes_target("pt2", "exported programs, refused", ".pt2", st.binary(max_size=64), _refuse_pt2, 0.5),
        _bytes_target(
            "devices", "files of devices, links, nodes (YAML)", ".yaml", _custom_files(), _ask_custom, 3
        ),
        _bytes_target("devices-toml", "the same as TOML", ".toml", _file_of("cluster.toml"), _ask_custom, 1),
        _bytes_target(
            "inventories", "inventories of clusters", ".yaml", _file_of("lab.yaml"), _ask_cluster, 2
        ),
        _bytes_target("slurm", "listings of Slurm", ".txt", _listings(), _ask_slurm, 1),
        _bytes_target("measured", "measured steps (CSV), evaluated", ".csv", measured_files(), _measured, 2),
        _bytes_target("calibrations", "calibrations", ".json", calibrations(), _ask_calibrated, 1.5),
        _bytes_target("plans", "plans of `measure`", ".toml", _plans(), _plan, 1),
        _bytes_target("studies", "studies of performance models", ".yaml", _file_of("study.yaml"), _study, 1),
        _bytes_target(
            "points", "points of performance models (CSV)", ".csv", _file_of("points.csv"), _points, 1
        ),
        _bytes_target("prices", "tables of prices (CSV)", ".csv", _file_of("prices.csv"), _prices, 1),
        _bytes_target("campaigns", "campaigns", ".yaml", _file_of("campaign.yaml"), _campaign, 1),
        _bytes_target("batches", "batches of PredictDDL", ".jsonl", _file_of("requests.jsonl"), _batch, 1),
        _bytes_target(
            "model-files", "fitted performance models", ".ptm", _damaged(_fitted), _model_file, 0.5, True
        ),
        _bytes_target(
            "campaign-stores", "stores of campaigns", ".db", _damaged(_campaign_store), _store, 0.5
        ),
        _bytes_target(
            "corpus-stores", "stores of measurements", ".sqlite", _damaged(_own_store), _own_rows, 0.5
        ),
        _bytes_target(
            "hypernetworks", "weights of hypernetworks", ".safetensors", _damaged(_net), _weights, 0.5, True
        ),
        _bytes_target("baselines", "baselines of reports", ".json", _baselines(), _baseline, 0.5),
    ]


def _bytes_target(
    name: str,
    what: str,
    suffix: str,
    given: st.SearchStrategy[bytes],
    read: Callable[[Path], None],
    share: float,
    heavy: bool = False,
) -> Target:
    return Target(name, what, given, _of_bytes(suffix, read), share, heavy)


def _configs() -> st.SearchStrategy[bytes]:
    return configs(CONFIG, MOE, WINDOWED)


def _berts() -> st.SearchStrategy[bytes]:
    return configs(BERT)


def _listings() -> st.SearchStrategy[bytes]:
    return inputs.broken(SINFO) | inputs.broken(SCONTROL)


def _damaged(made: Callable[[], bytes]) -> st.SearchStrategy[bytes]:
    """A binary file, made when it is needed, with broken bytes."""
    return st.deferred(lambda: inputs.broken(made()))


@cache
def _fitted() -> bytes:
    from precision_time_papers.ray_models.schema import prepared, read_study
    from precision_time_papers.ray_models.study import run_study

    points, plan = prepared(read_study(EXAMPLES / "study.yaml"), EXAMPLES / "points.csv")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.ptm"
        run_study(points, plan).model.save(path)
        return path.read_bytes()


@cache
def _campaign_store() -> bytes:
    from precision_time_papers.campaign.store import CampaignStore

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "campaign.db"
        with CampaignStore(path):
            pass
        return path.read_bytes()


def _store(path: Path) -> None:
    from precision_time_papers.campaign.store import read_store

    read_store(path)


@cache
def _own_store() -> bytes:
    from precision_time.corpus.importer import read_measurements
    from precision_time.corpus.measurement import Measurement
    from precision_time.corpus.store import MeasurementStore

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "own.sqlite"
        found = read_measurements(EXAMPLES.parents[1] / "packages/papers/tests/evaluation/data/runs.csv")
        with MeasurementStore(path) as store:
            store.add([row for row in found if isinstance(row, Measurement)])
        return path.read_bytes()


def _own_rows(path: Path) -> None:
    from precision_time.corpus.store import MeasurementStore

    with MeasurementStore(path, read_only=True) as store:
        store.measurements()


@cache
def _net() -> bytes:
    from precision_time_papers.ghn.weights import initial_weights, save_weights

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.safetensors"
        save_weights(path, initial_weights(0))
        return path.read_bytes()


def _weights(path: Path) -> None:
    from precision_time_papers.ghn.weights import load_weights

    load_weights(path)


def _baselines() -> st.SearchStrategy[bytes]:
    text = {
        "card": {"quick": True, "sample": None, "folds": 2},
        "figures": {"T2.x": {"value": 1.0, "spread": 0.1}},
    }
    return inputs.odd_documents(text).map(_dumped) | inputs.broken(json.dumps(text).encode())


def _baseline(path: Path) -> None:
    from precision_time_papers.evaluation.regressions import read_baseline

    read_baseline(path)


def _custom_files() -> st.SearchStrategy[bytes]:
    return inputs.odd_documents(_documents()["parsed"]["cluster.toml"]).map(_dumped)


@st.composite
def calibrations(draw: st.DrawFn) -> bytes:
    """A calibration with parts replaced, or with broken bytes."""
    if draw(st.booleans()):
        return draw(inputs.broken(_calibration()))
    from precision_time.learn.calibration.calibration import checksum

    document = draw(inputs.odd_documents(json.loads(_calibration())))
    if isinstance(document, dict):  # so that what was replaced is read
        document = json.loads(_dumped(document))
        document["sha256"] = checksum(document)
    return _dumped(document)


def _plans() -> st.SearchStrategy[bytes]:
    from precision_time_integrations.measure.precisions import DATA

    return inputs.broken((DATA / "cpu.toml").read_bytes())


def fresh(folder: Path) -> Path:
    """An empty folder in which the examples lie."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(EXAMPLES, folder)
    return folder
