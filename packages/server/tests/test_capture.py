"""Uploads: captured as usual, and hostile files end in an error in bounded time."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pickle
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from precision_time.errors import CaptureError, PrecisionTimeError
from precision_time.workload.graph import OpGraph
from precision_time.workload.resolve import load_workload
from precision_time_server.capture import child, process
from precision_time_server.capture.answer import graph_of
from precision_time_server.capture.kinds import UPLOAD, document_of
from precision_time_server.capture.process import CaptureLimits, capture_upload

USUAL = CaptureLimits(memory_bytes=6 * 2**30, time_s=60.0)
BATCH, WIDE, NARROW = 8, 32, 16


def captured(folder: Path, kind: str, data: bytes, limits: CaptureLimits = USUAL) -> OpGraph:
    (folder / UPLOAD[kind]).write_bytes(data)
    return asyncio.run(capture_upload(folder, kind=kind, name="upload", limits=limits))


# Programs of torch.export, written by hand: x[8, 32] @ w[16, 32].T


def tensor(*sizes: int, requires_grad: bool = False) -> dict[str, Any]:
    return {
        "dtype": 7, "sizes": [{"as_int": size} for size in sizes], "requires_grad": requires_grad,
        "device": {"type": "cpu", "index": None}, "strides": [], "storage_offset": {"as_int": 0}, "layout": 7,
    }  # fmt: skip


def node(target: str, output: str, **inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "target": target,
        "inputs": [{"name": name, "arg": arg, "kind": 1} for name, arg in inputs.items()],
        "outputs": [{"as_tensor": {"name": output}}],
        "metadata": {},
    }


def named(name: str) -> dict[str, Any]:
    return {"as_tensor": {"name": name}}


LINEAR = node("torch.ops.aten.linear.default", "y", input=named("x"), weight=named("w"))


def program(*nodes: Mapping[str, Any], x: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    graph = {
        "inputs": [named("w"), named("x")],
        "outputs": [named("y")],
        "nodes": list(nodes) or [LINEAR],
        "tensor_values": {"w": tensor(NARROW, WIDE, requires_grad=True), "x": x or tensor(BATCH, WIDE)},
        "sym_int_values": {},
    }
    signature = {
        "input_specs": [
            {"parameter": {"arg": {"name": "w"}, "parameter_name": "w"}},
            {"user_input": {"arg": named("x")}},
        ],
        "output_specs": [{"user_output": {"arg": named("y")}}],
    }
    return {
        "graph_module": {"graph": graph, "signature": signature},
        "schema_version": {"major": 8, "minor": 20},
        **changes,
    }


def archive(
    content: Mapping[str, Any] | bytes,
    more: Mapping[str, bytes] | None = None,
    compression: int = zipfile.ZIP_STORED,
) -> bytes:
    out = io.BytesIO()
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    with zipfile.ZipFile(out, "w", compression) as file:
        file.writestr("m/models/model.json", text)
        for name, data in (more or {}).items():
            file.writestr(name, data)
    return out.getvalue()


def open_size(hint: int | None, expression: str = "Symbol('s0')") -> dict[str, Any]:
    stated: dict[str, Any] = {"expr_str": expression}
    if hint is not None:
        stated["hint"] = {"as_int": hint}
    return {"as_expr": stated}


class Evil:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = str(place)

    def __reduce__(self) -> Any:
        return (open, (self.place, "w"))


def with_link() -> bytes:
    out = io.BytesIO(archive(program()))
    with zipfile.ZipFile(out, "a") as file:
        link = zipfile.ZipInfo("m/data/weights/weight_0")
        link.external_attr = 0o120777 << 16
        file.writestr(link, "/etc/passwd")
    return out.getvalue()


def calls(target: str, **inputs: Mapping[str, Any]) -> bytes:
    return archive(program(node(target, "y", **inputs)))


def with_x(stated: Mapping[str, Any]) -> bytes:
    return archive(program(x={**tensor(1, WIDE), "sizes": [stated, {"as_int": WIDE}]}))


def nested_calls(depth: int) -> dict[str, Any]:
    inner = LINEAR
    for _ in range(depth):
        graph = {"inputs": [named("x"), named("w")], "outputs": [named("y")], "nodes": [inner]}
        inner = {
            **node("torch.ops.higher_order.wrap_with_set_grad_enabled", "y"),
            "inputs": [
                {"name": "", "arg": arg}
                for arg in (
                    {"as_bool": True},
                    {"as_graph": {"name": "g", "graph": {**graph, "is_single_tensor_return": True}}},
                    named("x"),
                    named("w"),
                )
            ],
        }
    return inner


HOSTILE_PROGRAMS: dict[str, tuple[Callable[[], bytes], str]] = {
    "random": (lambda: os.urandom(5000), "not an archive"),
    "truncated": (lambda: archive(program())[:-40], "not an archive"),
    "ONNX": (lambda: calling(("f", "g")), "not an archive"),
    "no program": (lambda: archive({}).replace(b"model.json", b"other.json"), "0 programs"),
    "bomb": (lambda: archive(b" " * 2**27, compression=zipfile.ZIP_DEFLATED), "states 134,217,728"),
    "bomb of many": (
        lambda: archive(program(), {f"m/{i}": b"" for i in range(20_001)}),
        "20,002 entries",
    ),
    "path": (lambda: archive(program(), {"../../etc/passwd": b""}), "lead out of it"),
    "absolute": (lambda: archive(program(), {"/etc/passwd": b""}), "lead out of it"),
    "link": (with_link, "no links"),
    "deep JSON": (lambda: archive(b"[" * 200_000), "nested too deeply"),
    "no object": (lambda: archive(b"[]"), "schema version None"),
    "old": (lambda: archive(program(schema_version={"major": 5, "minor": 1})), "schema version 5"),
    "no graph": (lambda: archive(program(graph_module={})), "malformed: KeyError"),
    "function": (lambda: calls("torch.load", f={"as_string": "/etc/passwd"}), "torch.load"),
    "inside torch": (lambda: calls("torch.ops.aten.__class__.mro"), "operators of ATen"),
    "system": (lambda: calls("torch.os.system", command={"as_string": "id"}), "torch.os.system"),
    "attribute": (lambda: calls("_operator.attrgetter", a={"as_string": "__class__"}), "attrgetter"),
    "file": (
        lambda: calls(
            "torch.ops.aten.from_file.default",
            filename={"as_string": "/etc/passwd"},
            shared={"as_bool": False},
            size={"as_int": 10},
        ),
        "from_file",
    ),
    "other operators": (lambda: calls("torch.ops.fbgemm.run.default"), "fbgemm"),
    "object": (lambda: calls("torch.ops.aten.relu.default", self={"as_custom_obj": {}}), "as_custom_obj"),
    "expression": (lambda: with_x(open_size(None, "__import__('os').system('id')")), "for which sizes"),
    "negative": (lambda: with_x({"as_int": -8}), "malformed: RuntimeError"),
    "enormous": (lambda: with_x({"as_int": 2**62}), "malformed: RuntimeError"),
    "cycle": (
        lambda: archive(program(node("torch.ops.aten.relu.default", "y", self=named("y")))),
        "cannot run",
    ),
    "graphs in graphs": (lambda: archive(program(nested_calls(40))), "16 graphs"),
}


@pytest.mark.parametrize("case", HOSTILE_PROGRAMS)
def test_hostile_program_is_refused(case: str, tmp_path: Path) -> None:
    from precision_time_server.capture.program import capture_program

    make, says = HOSTILE_PROGRAMS[case]
    file = tmp_path / "model.pt2"
    file.write_bytes(make())
    started_s = time.perf_counter()
    with pytest.raises(CaptureError, match=says):
        capture_program(file, name="hostile")
    assert time.perf_counter() - started_s < 10.0


@pytest.mark.parametrize("batch", [{"as_int": BATCH}, open_size(BATCH)], ids=["fixed", "open"])
def test_program_is_read_without_unpickling(batch: Mapping[str, Any], tmp_path: Path) -> None:
    from precision_time_server.capture.program import capture_program

    evil = pickle.dumps(Evil(tmp_path / "was unpickled"))
    file = tmp_path / "model.pt2"
    x = {**tensor(BATCH, WIDE), "sizes": [batch, {"as_int": WIDE}]}
    data = archive(program(nested_calls(2), x=x), {"m/data/sample_inputs/model.pt": evil})
    file.write_bytes(data)
    graph = capture_program(file, name="linear")
    assert graph.forward_flops == 2 * WIDE * NARROW
    assert graph.params == graph.trainable_params == WIDE * NARROW
    assert graph.input_bytes_per_sample == 4 * WIDE
    assert not (tmp_path / "was unpickled").exists()


# ONNX


def small_onnx(**changes: Any) -> bytes:
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weight = helper.make_tensor("w", kind, [WIDE, NARROW], b"\0" * (4 * WIDE * NARROW), raw=True)
    for name in ("location", "offset"):
        if name in changes:
            weight.ClearField("raw_data")
            weight.data_location = onnx.TensorProto.EXTERNAL
            weight.external_data.add(key=name, value=changes[name])
    graph = helper.make_graph(
        changes.get("nodes") or [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind, changes.get("x", ["b", WIDE]))],
        [helper.make_tensor_value_info("y", kind, None)],
        [weight],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = changes.get("functions", [])
    data: bytes = helper.make_model(graph, opset_imports=opsets, functions=functions).SerializeToString()
    return data


def calling(*pairs: tuple[str, str]) -> bytes:
    """A model whose functions call one another."""
    helper = onnx.helper
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    made = [
        helper.make_function(
            "own", name, ["a"], ["c"], [helper.make_node(called, ["a"], ["c"], domain="own")], opsets
        )
        for name, called in pairs
    ]
    first = helper.make_node(pairs[0][0], ["x"], ["y"], domain="own")
    return small_onnx(nodes=[first], functions=made)


def in_one_another(depth: int) -> bytes:
    """Graphs inside of operators of graphs, in the bytes of protobuf."""

    def part(field: int, content: bytes) -> bytes:
        size, length = len(content), b""
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        return bytes([field << 3 | 2]) + length + bytes([size]) + content

    graph = b""
    for _ in range(depth):  # GraphProto.node, NodeProto.attribute, AttributeProto.g
        graph = part(1, part(5, part(6, graph)))
    return part(7, graph)


HOSTILE_ONNX: dict[str, tuple[Callable[[], bytes], str]] = {
    "random": (lambda: os.urandom(5000), "not a readable ONNX model|holds no operators"),
    "truncated": (lambda: small_onnx()[:-30], "not a readable ONNX model"),
    "archive": (lambda: archive(program()), "not a readable ONNX model"),
    "other file": (lambda: small_onnx(location="weights.bin"), "lie in another file"),
    "path": (lambda: small_onnx(location="../../../../etc/passwd"), "lie in another file"),
    "no place": (lambda: small_onnx(offset="0"), "lie in another file"),
    "calls itself": (lambda: calling(("f", "f")), "ends in a call of itself"),
    "call each other": (lambda: calling(("f", "g"), ("g", "h"), ("h", "f")), "ends in a call of itself"),
    "deep": (lambda: in_one_another(300), "not a readable ONNX model"),
}


@pytest.mark.parametrize("case", HOSTILE_ONNX)
def test_hostile_onnx_is_refused_before_it_is_inferred(case: str, tmp_path: Path) -> None:
    from precision_time.capture.onnx_graph import capture_onnx
    from precision_time_server.capture.onnx_checks import check_onnx

    make, says = HOSTILE_ONNX[case]
    file = tmp_path / "model.onnx"
    file.write_bytes(make())
    with pytest.raises(CaptureError, match=says):
        check_onnx(file)
        capture_onnx(file, name="hostile")


# The process


def test_upload_is_captured_as_usual_and_leaves_nothing(tmp_path: Path) -> None:
    from precision_time.capture.sources import capture_model

    graph = captured(tmp_path, "onnx", small_onnx())
    assert graph == capture_model(tmp_path / "model.onnx", name="upload")
    assert graph.forward_flops == 2 * WIDE * NARROW
    assert os.listdir(tmp_path) == ["model.onnx"]


PROBE = """
import json, os, pickle, socket, sys
sys.path.insert(0, {folder!r})
import child
os.chdir({work!r})
libc = child._libc()
held = child._limited(2**30, 5)
held["no network"] = child._without_network(libc)
roots = child._installed({packages!r})
def refused(function):
    try:
        function()
    except (OSError, MemoryError, PermissionError, pickle.UnpicklingError) as error:
        return True
    return False
held |= child._without_rights(libc, roots)
held["no other files"] = child._without_files(libc, roots, os.getcwd())
found = dict(
    memory=refused(lambda: bytearray(2**31)),
    network=refused(lambda: socket.create_connection(("127.0.0.1", {port}), 2)),
    file=refused(lambda: open({secret!r})),
    outside=refused(lambda: open({secret!r} + ".new", "w")),
)
sys.addaudithook(child._audit(roots, os.getcwd()))
found |= dict(
    hook_process=refused(lambda: os.fork() or os._exit(0)),
    hook_system=refused(lambda: os.system("true")),
    hook_socket=refused(socket.socket),
    hook_file=refused(lambda: open({secret!r})),
    hook_root=refused(lambda: open("/proc/self/root" + {secret!r})),
    hook_above=refused(lambda: open("../secret")),
    hook_pickle=refused(lambda: pickle.loads(b"cos\\nsystem\\n.")),
    hook_lets_ours=not refused(lambda: open("own", "w").close()),
)
print(json.dumps([held, found]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other platforms report what they lack")
def test_what_is_said_to_be_enforced_is(tmp_path: Path) -> None:
    work, secret = tmp_path / "work", tmp_path / "secret"
    work.mkdir()
    secret.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = PROBE.format(
            folder=str(Path(child.__file__).parent),
            packages=list(process._PACKAGES),
            work=str(work),
            secret=str(secret),
            port=server.getsockname()[1],
        )
        done = subprocess.run(
            [sys.executable, "-I", "-B", "-c", text], capture_output=True, text=True, timeout=60, check=True
        )
    held, found = json.loads(done.stdout)
    kernel = {
        "memory": "memory",
        "network": "no network",
        "file": "no other files",
        "outside": "no other files",
    }
    assert {name: found[name] for name in kernel if held[kernel[name]]} == {
        name: True for name in kernel if held[kernel[name]]
    }
    assert all(refused for name, refused in found.items() if name.startswith("hook_"))
    assert held["memory"] and held["processor time"] and held["no core"]


def test_child_that_never_ends_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sleeper.py"
    file.write_text(
        "import os, subprocess, sys, time\n"
        "started = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "open('started', 'w').write(str(started.pid))\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setattr(process, "_CHILD", file)
    started_s = time.perf_counter()
    with pytest.raises(CaptureError, match="ended after 2 s"):
        captured(tmp_path, "onnx", b"", CaptureLimits(memory_bytes=2**30, time_s=2.0))
    assert time.perf_counter() - started_s < 3.0
    pid = int((tmp_path / "started").read_text())
    state = Path(f"/proc/{pid}/stat")
    deadline_s = time.perf_counter() + 2.0
    while state.exists() and state.read_text().split()[2] != "Z" and time.perf_counter() < deadline_s:
        time.sleep(0.02)
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_child_ends_when_its_caller_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "sleeper.py"
    file.write_text("import os, time\nopen('started', 'w').write(str(os.getpid()))\ntime.sleep(60)\n")
    monkeypatch.setattr(process, "_CHILD", file)

    async def cancelled() -> None:
        call = asyncio.ensure_future(capture_upload(tmp_path, kind="onnx", name="x", limits=USUAL))
        while not (tmp_path / "started").exists() or not (tmp_path / "started").read_text():
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(asyncio.wait_for(cancelled(), 30))
    assert not Path(f"/proc/{(tmp_path / 'started').read_text()}").exists()


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import os; os.abort()", "SIGABRT"),
        ("raise SystemExit(3)", "exit code 3"),
        ("", "exit code 0"),
        ("print('no JSON')", "malformed"),
        ("import sys\nwhile True: sys.stdout.write('x' * 2**20)", "takes over"),
        ("print('{\"error\": ' + '[' * 100000)", "no answer"),
    ],
)
def test_child_is_not_believed(code: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "liar.py"
    file.write_text(code)
    monkeypatch.setattr(process, "_CHILD", file)
    with pytest.raises(CaptureError, match=says):
        captured(tmp_path, "onnx", b"", CaptureLimits(memory_bytes=2**30, time_s=20.0))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Files that torch writes: of a model with tied weights, a part without gradients, views and a loop."""
    functional = torch.nn.functional

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(100, 16)
            self.recurrent = torch.nn.LSTM(16, 16, batch_first=True)
            self.head = torch.nn.Linear(16, 100, bias=False)
            self.head.weight = self.words.weight
            self.register_buffer("mask", torch.ones(7, 7).tril(), persistent=False)

        def forward(self, words: Any) -> Any:
            x = self.words(words)
            with torch.no_grad():
                places = torch.arange(words.shape[1], dtype=torch.float32)[:, None]
            x = functional.dropout(x + places, 0.1, self.training)
            weights = (x @ x.transpose(1, 2)).masked_fill(self.mask == 0, -1e9).softmax(-1)
            attended = functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0]
            left, right = torch.chunk(self.recurrent(weights @ x)[0], 2, -1)
            return self.head(attended + torch.cat([left, right], -1)).view(-1, 100)

    words = torch.zeros(BATCH, 7, dtype=torch.long)
    opened = torch.export.export(Model().train(), (words,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    programs = {
        "open": opened,
        "fixed": torch.export.export(Model().train(), (words,)),
        "evaluating": torch.export.export(Model().eval(), (words,)),
        "decomposed": opened.run_decompositions(),
    }
    found = {}
    for name, each in programs.items():
        file = tmp_path_factory.mktemp("exported") / f"{name}.pt2"
        torch.export.save(each, file)
        found[name] = file.read_bytes()
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["open", "fixed", "evaluating", "decomposed"])
def test_exported_program_is_captured_as_torch_loads_it(
    name: str, exported: Mapping[str, bytes], tmp_path: Path
) -> None:
    from precision_time.capture.sources import capture_exported

    graph = captured(tmp_path, "pt2", exported[name])
    loaded = capture_exported(torch.export.load(tmp_path / "model.pt2"), name="upload")
    assert (graph.forward_flops, graph.training_flops) == (loaded.forward_flops, loaded.training_flops)
    assert (graph.params, graph.trainable_params) == (loaded.params, loaded.trainable_params)
    assert (graph.warnings, graph.notes, len(graph.nodes)) == (
        loaded.warnings,
        loaded.notes,
        len(loaded.nodes),
    )
    assert graph.saved_elems == loaded.saved_elems


@pytest.mark.nightly(
    covered_by="packages/server/tests/test_capture.py::test_child_that_never_ends_is_killed_with_what_it_started"
)
def test_endless_program_is_ended(tmp_path: Path) -> None:
    """Constants are computed: here with one product of 4096 x 4096 after another, for hours."""
    size = {"as_ints": [4096, 4096]}
    nodes = [
        node("torch.ops.aten.ones.default", "c0", size=size),
        *(
            node("torch.ops.aten.mm.default", f"c{i + 1}", self=named(f"c{i}"), mat2=named(f"c{i}"))
            for i in range(5000)
        ),
        LINEAR,
    ]
    limits = CaptureLimits(memory_bytes=8 * 2**30, time_s=12.0)
    started_s = time.perf_counter()
    with pytest.raises(CaptureError, match="ended after 12 s|SIG|memory"):
        captured(tmp_path, "pt2", archive(program(*nodes)), limits)
    assert time.perf_counter() - started_s < 13.0


# Graphs as data


def changed(**graph: Any) -> dict[str, Any]:
    document = document_of(load_workload("resnet50").graph)
    document["graph"] |= graph
    return document


def with_body(**fields: Any) -> dict[str, Any]:
    document = changed()
    document["graph"]["bodies"][0] |= fields
    return document


@pytest.mark.parametrize(
    "document",
    [
        {}, {"graph": None, "layers": []}, {**changed(), "more": 1}, {**changed(), "layers": []},
        changed(schema=2), changed(name=7), changed(name="x" * 1000), changed(params=float("nan")),
        changed(params=-1.0), changed(params=1e300), changed(params=True), changed(sequence=[]),
        changed(sequence=[[]]), changed(sequence=[[-1]]), changed(sequence=[[10**6]]),
        changed(sequence=[["a"]]), changed(sequence=[[0, 5]] * 3), changed(sequence=[[0, 0]]),
        changed(bodies=[]), changed(unpriced=[]), changed(notes="x" * 10**6), changed(image_size=0),
        with_body(m=float("inf")), with_body(m="1"), with_body(m=1e30), with_body(repeat=10**12),
        with_body(repeat=0), with_body(op_class="none"), with_body(op=[]), with_body(inputs=[5]),
        with_body(__class__="x"), with_body(sequential_steps=10**12), with_body(kernel=-1),
    ],
)  # fmt: skip
def test_malformed_graph_is_refused(document: Mapping[str, Any]) -> None:
    with pytest.raises(PrecisionTimeError):
        graph_of(document)
    with pytest.raises(PrecisionTimeError):
        graph_of(json.dumps(document).encode())


def test_graph_survives_as_data() -> None:
    graph = load_workload("llama3-8b").graph
    assert graph_of(json.dumps(document_of(graph)).encode()) == graph == graph_of(document_of(graph))


def test_who_may_read_a_folder_is_told_by_its_mode() -> None:
    def folder(mode: int) -> os.stat_result:
        return os.stat_result((0o040000 | mode, 0, 0, 2, 65534, 0, 0, 0, 0, 0))

    assert [child._can_read(user, folder(0o700)) for user in (65534, 0, 1000)] == [True, False, False]
    assert [child._can_read(user, folder(0o750)) for user in (65534, 0, 1000)] == [True, True, False]
    assert [child._can_read(user, folder(0o705)) for user in (65534, 0, 1000)] == [True, False, True]
    assert not any(child._can_read(user, folder(0o644)) for user in (65534, 0, 1000))
