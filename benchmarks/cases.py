"""What is measured, and the targets. Each case is code for a fresh interpreter that prints JSON figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A limit on one of the figures of a case."""

    figure: str
    limit: float
    unit: str
    scale: float = 1.0
    """Figure times scale is in `unit`."""
    suffix: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One benchmark."""

    name: str
    code: str
    targets: tuple[Target, ...]
    repeats: int = 3
    needs: tuple[str, ...] = ()
    """Packages beyond the core."""


_IMPORT = """
import time; start = time.perf_counter()
import precision_time
import json; print(json.dumps({"seconds": time.perf_counter() - start}))
"""

_HELP = """
from precision_time.cli.main import main
main(["--help"])
"""

_COLD_PREDICT = """
from precision_time.cli.main import main
main("predict resnet50 --device A100-SXM4-80GB --gpus 8 --batch-size 256".split())
"""

WARM_CALL = """
import json, statistics, time
from precision_time import predict_time
def ask(batch_size):
    start, cpu = time.perf_counter(), time.process_time()
    predict_time("resnet50", device="A100-SXM4-80GB", gpus=8, precision="fp16-mixed", batch_size=batch_size)
    return time.perf_counter() - start, time.process_time() - cpu
ask(256)
taken = [ask(batch) for batch in range(32, 232)]
seconds, cpu_s = (statistics.median(column) for column in zip(*taken))
print(json.dumps({"seconds": seconds, "cpu_s": cpu_s}))
"""

SAID = (
    'stack="pytorch-eager", channels_last=False, compiler="none", real_input=False, software=2024.0, '
    'checkpointing="none", zero=0, grad_accum=1, optimizer="sgd", image_size=224'
)
"""What else a request of resnet50 says so that it leaves nothing open, in words that every version reads."""

WARM_CALL_SAID = WARM_CALL.replace("batch_size=batch_size)", f"batch_size=batch_size, {SAID})")

SWEEP = """
import json, tempfile, time
from precision_time import sweep

with tempfile.TemporaryDirectory() as folder:
    cpu = time.process_time()
    sweep(
        "resnet50", device=["V100-SXM2-16GB", "A100-SXM4-40GB", "A100-SXM4-80GB", "H100-SXM5-80GB"],
        precision=["fp32", "tf32", "fp16-mixed", "bf16-mixed"], gpus="8..200:8", batch_size="1..250:1",
        out=f"{folder}/sweep.csv", workers=1,
    )
    print(json.dumps({"cpu_s": time.process_time() - cpu}))
"""

SWEEP_SAID = SWEEP.replace("workers=1", f"workers=1, network='200g-ib', {SAID}")
"""The network, too: hosts without one are a mixture of those that people have."""

DOES_NOT_FIT = """
import json, statistics, time
from precision_time import predict_time
def ask(batch_size):
    cpu = time.process_time()
    predict_time(
        "llama3-70b", device="A100-SXM4-80GB", gpus=8, precision="bf16-mixed", zero=0, batch_size=batch_size
    ).step_time_s
    return time.process_time() - cpu
ask(40)
print(json.dumps({"cpu_s": statistics.median(map(ask, range(1, 33)))}))
"""

_SWEEP_TO_FILE = """
import json, resource, tempfile, time
from precision_time import sweep

with tempfile.TemporaryDirectory() as folder:
    start = time.perf_counter()
    sweep(
        "resnet50", device=["V100-SXM2-16GB", "A100-SXM4-40GB", "A100-SXM4-80GB", "H100-SXM5-80GB"],
        precision=["fp32", "tf32", "fp16-mixed", "bf16-mixed"], gpus="8..200:8", batch_size="1..250:1",
        out=f"{folder}/sweep.csv", workers=2,
    )
    seconds = time.perf_counter() - start
peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps({"seconds": seconds, "peak_bytes": max(peaks) * 1024.0}))
"""

_PLAN = """
from precision_time.cli.main import main
main("plan resnet50 --epochs 90 --deadline 24h --budget 500".split())
"""

_LARGE_PLAN = """
import json, time
from precision_time.planning.decision.api import plan

start = time.perf_counter()
found = plan(
    "resnet50", epochs=90, deadline="24h", budget=500, clouds="aws", workers=2,
    devices=["V100-SXM2-16GB", "A100-SXM4-40GB", "A100-SXM4-80GB", "H100-SXM5-80GB"],
    precision=["fp32", "tf32", "fp16-mixed", "bf16-mixed"], gpus=range(8, 201, 8), batch_size="1..250:1",
)
seconds = time.perf_counter() - start
assert found.counts.asked == 100_000 and found.choices
print(json.dumps({"seconds": seconds}))
"""

_LAYOUT = """
from precision_time.cli.main import main
main("layout llama3-70b -d H100-SXM5-80GB -g 512 --global-batch-size 1024 -p bf16-mixed --workers 2".split())
"""

_CAPTURE = """
import json, resource, time
{imports}
start = time.perf_counter()
graph = {call}
seconds = time.perf_counter() - start
peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps(dict(seconds=seconds, peak_bytes=peak_bytes, params=graph.params)))
"""

_CAPTURE_RESNET50 = _CAPTURE.format(
    imports="""
from precision_time.capture.timm_models import import_timm, timm_capturer
import_timm()
""",
    call="timm_capturer('resnet50')(1)",
)

_CAPTURE_LLAMA_70B = _CAPTURE.format(
    imports="""
import pathlib, tempfile
from precision_time.capture.sources import capture_model
path = pathlib.Path(tempfile.mkdtemp()) / "config.json"
path.write_text(json.dumps({
    "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 4096,
}))
""",
    call="capture_model(path, seq_len=4096)",
)

CASES = (
    Case(
        name="import precision_time",
        code=_IMPORT,
        targets=(Target(figure="seconds", limit=0.3, unit="s"),),
        repeats=5,
    ),
    Case(
        name="precision-time --help",
        code=_HELP,
        targets=(Target(figure="wall_s", limit=0.5, unit="s"),),
        repeats=5,
    ),
    Case(
        name="cold predict resnet50",
        code=_COLD_PREDICT,
        targets=(Target(figure="wall_s", limit=1.0, unit="s"),),
        repeats=5,
    ),
    Case(
        name="warm predict_time call",
        code=WARM_CALL,
        targets=(Target(figure="seconds", limit=5.0, unit="ms", scale=1e3),),
    ),
    Case(
        name="100,000 configurations of resnet50 into a file, by two processes",
        code=_SWEEP_TO_FILE,
        targets=(
            Target(figure="seconds", limit=6.0, unit="s"),
            Target(figure="peak_bytes", limit=0.3, unit="GB", scale=1e-9, suffix=", peak memory"),
        ),
        repeats=1,
    ),
    Case(
        name="cold plan of resnet50 over all clouds",
        code=_PLAN,
        targets=(Target(figure="wall_s", limit=5.0, unit="s"),),
    ),
    Case(
        name="plan among 100,000 combinations and every offer, by two processes",
        code=_LARGE_PLAN,
        targets=(Target(figure="seconds", limit=15.0, unit="s"),),
        repeats=1,
    ),
    Case(
        name="layout of a 70B model on 512 devices",
        code=_LAYOUT,
        targets=(Target(figure="wall_s", limit=10.0, unit="s"),),
        repeats=2,
    ),
    Case(
        name="capture resnet50",
        code=_CAPTURE_RESNET50,
        targets=(Target(figure="seconds", limit=3.0, unit="s"),),
        needs=("torch", "timm"),
    ),
    Case(
        name="capture a 70B Llama",
        code=_CAPTURE_LLAMA_70B,
        targets=(
            Target(figure="seconds", limit=10.0, unit="s"),
            Target(figure="peak_bytes", limit=2.0, unit="GB", scale=1e-9, suffix=", peak memory"),
        ),
        repeats=2,
        needs=("torch", "transformers"),
    ),
)
