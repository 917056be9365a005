"""What the page's charts know of the library: the names of terms and of what takes memory."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from precision_time import predict_time
from precision_time.cost.terms import METHOD_TERMS, TERMS

CHARTS = Path(__file__).parents[1] / "src/precision_time_server/page/charts"
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")


def run(code: str) -> Any:
    """What a module prints as JSON."""
    assert NODE is not None
    names = ("terms", "scale")
    imports = "".join(f'import * as {name} from "{CHARTS.as_uri()}/{name}.js";' for name in names)
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", f"{imports} console.log(JSON.stringify({code}))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_every_term_has_its_title_its_group_and_a_look_of_its_own() -> None:
    known = run("[terms.TERMS, terms.GROUPS]")
    assert {name: entry[:2] for name, entry in known[0].items()} == {
        term.name: [term.title, term.group.value] for term in (*TERMS, *METHOD_TERMS)
    }
    assert list(known[0]) == [term.name for term in (*TERMS, *METHOD_TERMS)]
    colors = [color for *_, color in known[0].values()]
    assert len({*colors}) == len(colors)
    assert {group for _, group, _ in known[0].values()} <= known[1].keys()


def test_every_part_of_the_memory_has_a_title() -> None:
    parts = [*predict_time("mixtral-8x7b", device="H100-SXM5-80GB", gpus=8, ep=8).memory_terms]
    looks = run(f"{json.dumps(parts)}.map(terms.memoryOf)")
    gray = run("terms.memoryOf('nobody_knows_bytes')")
    assert gray["title"] == "nobody knows" and all(each["color"] != gray["color"] for each in looks)
    assert len({each["title"] for each in looks}) == len(parts)


def test_a_combination_of_color_and_mark_stands_for_one_series_alone() -> None:
    looks = run("Array.from({ length: 64 }, (_, at) => terms.seriesLook(at))")
    assert len({(each["color"], each["mark"]) for each in looks}) == len(looks)


def test_axes_of_any_range_have_a_few_ticks_inside_it() -> None:
    ranges = [(1e-9, 1e9), (1.0, 1.01), (0.9, 1.2), (59.0, 61.0), (3.0e7, 4e12), (1e-6, 2e-6)]
    code = (
        "[scale.logTicks, scale.timeTicks].flatMap((made) => RANGES.map((ends) => [ends, made(...ends, 7)]))"
    )
    for (low, high), found in run(code.replace("RANGES", json.dumps(ranges))):
        assert 1 <= len(found) <= 8, (low, high, found)
        assert found == sorted(found) and low * 0.999 <= found[0] and found[-1] <= high * 1.001
    linear, nothing, times, sizes, memory = run("""[
        scale.ticks(0, 1, 5), scale.ticks(0, 0, 5), [1, 0.25, 3600, 86400 * 2].map(scale.timeTick),
        [2 ** 30 * 16, 2 ** 20 * 512].map(scale.byteTick), scale.byteTicks(80 * 2 ** 30, 8)]""")
    assert linear == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0]) and nothing == [0]
    assert times == ["1 s", "250 ms", "1 h", "2 d"] and sizes == ["16 GiB", "512 MiB"]
    assert memory == [n * 16 * 2**30 for n in range(6)]
