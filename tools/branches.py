"""Branches of each distribution that the tests of the night take, held to the floors of tests/surface.toml.

    python tools/branches.py FOLDER [--raise]    of what `tools/unit.py --branches FOLDER` left there

Counted are the processes of the tests, not those that tests start: what only these run counts as not taken.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ROOT / "tests" / "surface.toml"
SLACK = 1.0
"""Points that a floor may lie below what is measured before it must be raised: machines differ."""


def command_of(folder: Path) -> tuple[str, ...]:
    """What runs a module so that its branches are counted in a folder, each process in a file of its own."""
    sources = [*sorted((ROOT / "packages").glob("*/src")), ROOT / "src"]
    return (
        sys.executable, "-m", "coverage", "run", "--branch", "--parallel-mode",
        f"--data-file={folder / 'branches'}",
        f"--source={','.join(map(str, sources))}", "-m",
    )  # fmt: skip


def distribution_of(path: str) -> str:
    """Of a source file, by its path from the root: `core`, or the member's folder."""
    parts = Path(path).parts
    return parts[1] if parts[0] == "packages" else "core"


def shares(report: Mapping[str, Any]) -> dict[str, float]:
    """Branches taken in per cent, by distribution.

    Args:
        report: As `coverage json` writes it, with paths from the root.
    """
    taken: dict[str, int] = {}
    there: dict[str, int] = {}
    for path, file in report["files"].items():
        name = distribution_of(path)
        taken[name] = taken.get(name, 0) + file["summary"]["covered_branches"]
        there[name] = there.get(name, 0) + file["summary"]["num_branches"]
    return {name: 100.0 * taken[name] / there[name] for name in sorted(there) if there[name]}


def wrong(measured: Mapping[str, float], floors: Mapping[str, float]) -> list[str]:
    """What is below its floor, has none, is gone, or lies so far above that the floor must be raised."""
    said = [
        f"[branches] {name} = {share:.1f} has no floor"
        for name, share in measured.items()
        if name not in floors
    ]
    for name, floor in floors.items():
        share = measured.get(name)
        if share is None:
            said.append(f"[branches] {name} is gone")
        elif share < floor:
            said.append(f"[branches] {name}: {share:.1f} % are taken, below the floor of {floor:g}")
        elif share > floor + SLACK:
            said.append(f"[branches] {name}: {share:.1f} % are taken, the floor is {floor:g}: raise it")
    return said


def raised(text: str, measured: Mapping[str, float]) -> str:
    """The text of surface.toml with floors as high as what is measured, in half points; none is lowered."""
    head, table, rest = text.partition("[branches]\n")

    def higher(entry: re.Match[str]) -> str:
        share = measured.get(entry[1], 0.0)
        return f"{entry[1]} = {max(float(entry[2]), int(2 * share) / 2):g}"

    return head + table + re.sub(r"^(\w+) = ([\d.]+)$", higher, rest, flags=re.MULTILINE)


def report_of(folder: Path) -> dict[str, Any]:
    """All that was counted in a folder, combined, as `coverage json` writes it."""
    data = f"--data-file={folder / 'branches'}"
    combine = ("combine", "--quiet", "--append", data)
    with tempfile.TemporaryDirectory() as place:
        written = Path(place) / "report.json"
        parts = any(folder.glob("branches.*"))  # none where they were combined before
        for words in ((combine,) if parts else ()) + (("json", "--quiet", data, "-o", str(written)),):
            subprocess.run([sys.executable, "-m", "coverage", *words], cwd=ROOT, check=True)
        found: dict[str, Any] = json.loads(written.read_text(encoding="utf-8"))
        return found


def check(folder: Path) -> list[str]:
    """Print the shares beside their floors; what is wrong with them."""
    measured = shares(report_of(folder))
    floors = tomllib.loads(FLOORS.read_text(encoding="utf-8"))["branches"]
    for name, share in measured.items():
        print(f"branches   {name:26} {share:7.1f} {floors.get(name, '-'):>7}")
    return wrong(measured, floors)


def main(arguments: Sequence[str]) -> None:
    """Compare, or raise the floors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--raise", dest="higher", action="store_true", help="raise the floors to what is measured"
    )
    asked = parser.parse_args(arguments)
    if asked.higher:
        text = FLOORS.read_text(encoding="utf-8")
        FLOORS.write_text(raised(text, shares(report_of(asked.folder))), encoding="utf-8")
    sys.exit("\n".join(check(asked.folder)) or None)


if __name__ == "__main__":
    main(sys.argv[1:])
