"""Build the four wheels; ask the core alone, with the lowest versions of its dependencies and the newest.

Both environments answer the same questions, equal to nine digits; what needs an extra is refused by name.
Then each of the others is installed beside the core in an environment of its own, and asked.
Prints what is installed and fails above `MOST_MB`. The lowest versions have wheels for the oldest Python
alone: on a newer one they are left out, and a line says so. Run by `make test`; needs the package registry.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import math
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MOST_MB = 132.0
"""Of the core alone."""
OLDEST_PYTHON = (3, 11)
_CLOSE = 1e-9
"""Relative difference between answers in both environments: sums may be rounded otherwise."""
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048,
    "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "tie_word_embeddings": True,
}  # fmt: skip
"""What Hugging Face says of a Llama 3.2 of 1.2 billion parameters."""
ASKED = (
    "predict resnet50 -d A100-SXM4-80GB --json",
    "predict resnet50 -d A100-SXM4-80GB",
    "predict config.json -d 8xH100 -p bf16-mixed --seq-len 4096 --json",
    "predict job.yaml --json",
    "predict gpt2 -d A100,H100 -b 8,16,32 -p tf32,bf16-mixed --json",
    "layout gpt2-xl -d 8xA100-SXM4-80GB --global-batch-size 64 --json",
    "explain vit-b-16 -d H100 --json",
    "devices --json",
    "models --family cnn --json",
    "evaluate runs.csv --json",
    "calibrate runs.csv --out calibration.json --force --json",
    "env",
)
OF_MEMBERS = {
    "server": ("serve --help",),
    "integrations": ("trainers --json", "estimate job.sh --json", "share --help", "import --help"),
    "papers": (
        "architectures resnet50 --json",
        "predictors --json",
        "precisions search --help",
        "campaign --help",
    ),
}
"""Commands that each distribution beside the core answers."""
REFUSED = {
    "train --output own": "train",
    "predict models.py:small -d A100": "capture",
    "predict resnet50 -d A100 -b 8,16 --out sweep.png": "plots",
    "--server http://localhost:1 predict resnet50": "client",
}
"""Commands that need more than the core, and the extra that the error has to name."""
NOT_INSTALLED = {
    "serve": "precision-time-server",
    "measure": "precision-time-integrations",
    "watch run.log": "precision-time-integrations",
    "report --quick": "precision-time-papers",
    "performance-models study.yaml": "precision-time-papers",
    "schedule jobs.yaml": "precision-time-papers",
    "precisions search gpt2": "precision-time-papers",
}
"""Commands of the other distributions, and the one that the error has to name."""
TIMED = ("search_s",)
"""Fields that say how long the answer took."""
CALLS = """
import precision_time as pt
one = pt.predict_time("bert-large", device="V100-SXM2-32GB", batch_size=8, seq_len=512)
many = pt.predict_many([{"model": "resnet50", "device": name} for name in ("A100", "T4", "MI250X")])
swept = pt.sweep(model="gpt2", device=["A100", "H100"], batch_size=[8, 16], precision=["tf32", "bf16-mixed"])
answer = [one.to_dict(), many.to_dict(), swept.to_dict()]
"""


def ask() -> dict[str, Any]:
    """Every answer of the core alone, and the size of each package [bytes]; runs inside of an environment."""
    answers = {line: found for line in ASKED if (found := answer_of(line)) is not None}
    for line, extra in REFUSED.items():
        answer_of(line, says=f"precision-time[{extra}]")
    for line, distribution in NOT_INSTALLED.items():
        answer_of(line, says=f"pip install {distribution}.")
    names: dict[str, Any] = {}
    exec(CALLS, names)  # noqa: S102
    return {
        "answers": answers | {"python": names["answer"]},
        "modules": modules("precision_time"),
        "sizes": {item.name: (item.version, size_of(item)) for item in metadata.distributions()},
    }


def ask_member(name: str) -> dict[str, Any]:
    """What a distribution beside the core answers; runs inside of an environment."""
    for line in OF_MEMBERS[name]:
        answer_of(line)
    sizes = {item.name: (item.version, size_of(item)) for item in metadata.distributions()}
    return {"modules": modules(f"precision_time_{name}"), "sizes": sizes}


def answer_of(line: str, *, says: str = "") -> Any:
    """What a command says as JSON; None where it says it otherwise.

    Args:
        line: Its words.
        says: What its error has to say; "" where it has to answer.
    """
    from precision_time.cli.main import main

    out, errors, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            main(line.split())
        except SystemExit as done:
            code = int(done.code or 0)
    wanted = 2 if says else 0
    if code != wanted or says not in errors.getvalue():
        sys.exit(f"precision-time {line}: exit code {code} in the place of {wanted}:\n{errors.getvalue()}")
    return json.loads(out.getvalue()) if line.endswith("--json") and not says else None


def modules(package: str) -> tuple[int, int]:
    """Modules of a package that import, and those that need the package of an extra."""
    path = importlib.import_module(package).__path__
    works = needs = 0
    for module in pkgutil.walk_packages(path, f"{package}.", onerror=lambda _: None):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
            works += 1
        except ImportError as error:
            if error.name is not None and error.name.split(".")[0] == package:
                raise
            needs += 1
    return works, needs


def size_of(distribution: metadata.Distribution) -> int:
    """Installed bytes, compiled modules among them."""
    paths = (Path(str(file.locate())) for file in distribution.files or ())
    return sum(path.stat().st_size for path in paths if path.is_file())


def lowest() -> list[str]:
    """The lower bound of each core dependency, as constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [re.split(",", name)[0].replace(">=", "==") for name in project["dependencies"]]


def answers_of(name: str, constraints: list[str], wheels: list[Path], folder: Path) -> dict[str, Any]:
    """Install the wheels and nothing else into an environment of its own, and ask them there."""
    home = folder / name
    venv.create(home / "venv", with_pip=False, symlinks=os.name != "nt")
    python = home / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    limits = home / "constraints.txt"
    limits.write_text("\n".join(constraints), encoding="utf-8")
    compiled = [] if name == "newest" else ["--no-compile"]  # only the newest are weighed
    pip(
        [
            "--python",
            str(python),
            "install",
            "--only-binary",
            ":all:",
            *compiled,
            "-c",
            str(limits),
            *map(str, wheels),
        ]
    )
    shutil.copytree(ROOT / "docs" / "examples", home / "asked")
    shutil.copy(ROOT / "packages/integrations/examples/slurm/job.sh", home / "asked")
    (home / "asked" / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    kept = {key: os.environ[key] for key in ("PATH", "SYSTEMROOT", "TMPDIR") if key in os.environ}
    done = subprocess.run(
        [python, Path(__file__), "ask", name],
        cwd=home / "asked",
        env={**kept, "HOME": str(home), "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        sys.exit(f"In the environment {name}:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def pip(words: list[str]) -> None:
    """Run pip; what it said only where it fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def difference(one: Any, other: Any, where: str = "") -> str:
    """The first place where two answers differ; empty if they are equal to nine digits."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        keys = [key for key in one if key not in TIMED]
        return next(filter(None, (difference(one[key], other[key], f"{where}.{key}") for key in keys)), "")
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next(filter(None, (difference(*pair, f"{where}.{index}") for index, pair in pairs)), "")
    if isinstance(one, float) and isinstance(other, float):
        return "" if math.isclose(one, other, rel_tol=_CLOSE) else f"{where}: {one} and {other}"
    return "" if one == other else f"{where}: {one!r:.200} and {other!r:.200}"


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    """Versions of each package, and the size of the newest with its compiled modules, the largest first."""
    newest = found["newest"]["sizes"]
    every = sorted({name for each in found.values() for name in each["sizes"]})
    every.sort(key=lambda name: -newest.get(name, ("", 0))[1])
    lines = [f"{'package':<20}" + "".join(f"{name:>10}" for name in found) + "      MB"]
    for name in every:
        versions = "".join(f"{each['sizes'].get(name, ('-', 0))[0]:>10}" for each in found.values())
        lines.append(f"{name:<20}{versions}{newest.get(name, ('', 0))[1] / 1e6:>8.1f}")
    return [*lines, f"{'all':<20}{'':>{10 * len(found)}}{total_mb(found['newest']):>8.1f}"]


def total_mb(found: dict[str, Any]) -> float:
    """Installed megabytes."""
    return float(sum(size for _, size in found["sizes"].values())) / 1e6


def built(place: Path, folder: Path) -> Path:
    """The wheel of a folder of sources."""
    pip(["wheel", "--no-deps", "--wheel-dir", str(folder), str(place)])
    (wheel,) = folder.glob("*.whl")
    return wheel


def run() -> None:
    """Build, install twice at a time, compare, print, judge."""
    wanted = {"lowest": lowest(), "newest": list[str]()}
    if sys.version_info[:2] != OLDEST_PYTHON:
        print(f"Lowest versions left out: they have wheels for Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]}.")
        del wanted["lowest"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        places = {"core": ROOT, **{name: ROOT / "packages" / name for name in OF_MEMBERS}}
        wheels = {name: built(place, folder / "wheels" / name) for name, place in places.items()}
        core = [wheels["core"]]
        beside = {
            "server": [*core, wheels["server"]],
            "integrations": [*core, wheels["integrations"]],
            "papers": [*core, wheels["integrations"], wheels["papers"]],
        }
        with ThreadPoolExecutor(2) as pool:
            jobs = {key: pool.submit(answers_of, key, limits, core, folder) for key, limits in wanted.items()}
            jobs |= {name: pool.submit(answers_of, name, [], some, folder) for name, some in beside.items()}
            answered = {key: job.result() for key, job in jobs.items()}
        found = {key: answered[key] for key in wanted}
        sizes_mb = {name: wheel.stat().st_size / 1e6 for name, wheel in wheels.items()}
    print("\n".join(table(found)))
    works, needs = found["newest"]["modules"]
    print(
        f"The wheel has {sizes_mb['core']:.1f} MB. {len(ASKED)} commands answered, "
        f"{len(REFUSED) + len(NOT_INSTALLED)} refused with what to install; "
        f"{works} modules import with the core alone, {needs} need an extra."
    )
    for name, lines in OF_MEMBERS.items():
        works, needs = answered[name]["modules"]
        print(
            f"{name}: a wheel of {sizes_mb[name]:.1f} MB, {total_mb(answered[name]):.1f} MB in all; "
            f"{len(lines)} commands answered; {works} modules import, {needs} need an extra."
        )
    differs = difference(*(each["answers"] for each in found.values())) if len(found) > 1 else ""
    if differs:
        sys.exit(f"The lowest and the newest versions answer differently: {differs}")
    installed = total_mb(found["newest"])
    if installed > MOST_MB:
        sys.exit(f"{installed:.1f} MB are installed, at most {MOST_MB:g} are allowed.")


if __name__ == "__main__":
    if sys.argv[1:2] == ["ask"]:
        print(json.dumps(ask_member(sys.argv[2]) if sys.argv[2] in OF_MEMBERS else ask()))
    else:
        run()
