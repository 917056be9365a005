"""Paths and names that the documentation quotes exist: what was moved or renamed is found."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROSE = {".md"}
DATA = {".csv", ".npz", ".bin", ".sqlite", ".gz", ".svg", ".webp", ".png", ".ttf", ".woff2"}
"""No source: names in measured rows prove nothing."""
FENCED = re.compile(r"```.*?```", re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
A_PATH = re.compile(
    r"(?:\.{0,2}/)?[\w.-]+(?:/[\w.-]+)+/?|[\w-]+\.(?:py|toml|md|json|yaml|yml|sh|svg|html|lua|js)"
)
A_NAME = re.compile(r"[A-Za-z_]\w{2,}(?:\.[A-Za-z_]\w*)*(?:\(\))?")
OF_OTHERS = frozenset({
    "vit_l_16", "GB/s", "Conv1D", "no_sync", "owner/name", "torchvision/NAME",
    "sympify", "F.linear", "pipit", "saxpy", "setpriv", "AdmissionConfiguration", "TrainingRuntime",
    "kubeConfigFile", "schedules/eager.py", "ssl_resnet18", 
    "precision-time.dev/margin",  "/openapi.json", "precision_time_predictions_total",
    "precision_time_measurements_total",
})  # fmt: skip
"""Names of other programs, examples, and names of ours that the changelog says are gone."""


@cache
def tracked() -> tuple[str, ...]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return tuple(name for name in listed.stdout.splitlines() if (ROOT / name).is_file())


@cache
def places() -> frozenset[str]:
    """Every tracked file and folder, by all ends of its path."""
    paths = {path for name in tracked() for path in (Path(name), *Path(name).parents)}
    return frozenset("/".join(path.parts[start:]) for path in paths for start in range(len(path.parts)))


@cache
def source() -> str:
    """All tracked text that is neither prose nor measured."""
    return "\n".join(
        (ROOT / name).read_text(encoding="utf-8", errors="ignore")
        for name in tracked()
        if Path(name).suffix not in PROSE | DATA and (ROOT / name) != Path(__file__)
    )


@cache
def words() -> frozenset[str]:
    return frozenset(re.findall(r"[A-Za-z_]\w*", source()))


def exists(quoted: str) -> bool:
    """What prose quotes is a file, a folder, a name in one (`cost/step.price`) or a word of the source."""
    if quoted in OF_OTHERS:
        return True
    if A_PATH.fullmatch(quoted):
        path = re.sub(r"^(?:\.{1,2}/)+", "", quoted).rstrip("/")
        module, _, name = path.rpartition(".")
        inside = f"{module}.py" in places() and name in words()
        return (
            path in places() or f"{path}.py" in places() or inside or quoted.removesuffix("...") in source()
        )
    if A_NAME.fullmatch(quoted):
        return any(
            words().issuperset(name.split(".")) for name in (quoted.strip("()"), quoted.rstrip("0123456789"))
        )
    return True


@pytest.mark.parametrize(
    "page", [name for name in tracked() if name.endswith(".md") and name != "CHANGELOG.md"]
)
def test_what_a_page_quotes_exists(page: str) -> None:
    text = FENCED.sub("", (ROOT / page).read_text(encoding="utf-8"))
    assert sorted({match[1] for match in QUOTED.finditer(text) if not exists(match[1])}) == []


def test_what_is_gone_is_found() -> None:
    """Planted: a file that was moved, a class that was renamed, a function that its file does not have."""
    assert exists("cost/step.py") and exists("precision_time") and exists("cost/step.price")
    gone = "cost/" + "model_axes.py", "Compared" + "Runs", "cost/step.price_" + "everything"
    assert [quoted for quoted in gone if exists(quoted)] == []
