# ruff: noqa: E501 - lines of the page
"""The page of the recipes that are read: formats by the vocabularies, and answers beside what projects publish.

    python packages/integrations/studies/recipe_page.py --write

Every recipe of tests/recipes/measured.csv is asked as its file stands, with the device and the number of
devices of its publisher and nothing else; where that device has no bfloat16, in fp16.
"""

from __future__ import annotations

import csv
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pages import write_page
from precision_time.errors import PrecisionTimeError, in_one_line
from precision_time.predict.api import predict
from precision_time.request.recipes import kind_of
from precision_time.request.request import Request
from precision_time.units import GIBI
from precision_time_integrations.recipes.files import read_recipe
from precision_time_integrations.recipes.vocabulary import RECIPES, vocabulary

ROOT = Path(__file__).resolve().parents[3]
TESTS = ROOT / "packages/integrations/tests/recipes"
PAGE = ROOT / "docs/reference/recipes.md"
TIME_TARGET, MEMORY_TARGET = 0.20, 0.15
_NO_BF16 = ("T4",)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One published figure and the answer to its recipe."""

    file: str
    device: str
    devices: int
    measured_s: float
    predicted_s: float
    measured_bytes: float
    """0 where none is published."""
    predicted_bytes: float
    lengths_known: bool
    """Whether the lengths of the samples are known, of the data set or since every row is full."""
    suspect: bool

    @property
    def time_error(self) -> float:
        """Relative."""
        return self.predicted_s / self.measured_s - 1.0

    @property
    def memory_error(self) -> float:
        """Relative; NaN without a published figure."""
        return self.predicted_bytes / self.measured_bytes - 1.0 if self.measured_bytes else math.nan


def answers() -> tuple[list[Answer], list[tuple[str, str]]]:
    """The answers, and what has none with the reason."""
    found, refused = [], []
    for row in csv.DictReader((TESTS / "measured.csv").read_text().splitlines()):
        path = str(TESTS / "public" / row["file"])
        try:
            recipe = read_recipe(path, kind_of(path))
            given: dict[str, Any] = {"device": row["device"], "gpus": int(row["gpus"])}
            if row["device"] in _NO_BF16 and str(recipe.fields.get("precision", "")).startswith("bf16"):
                given["precision"] = "fp16-mixed"
            request = Request.of(recipe.merged(given))
            answer = predict(request)
        except PrecisionTimeError as error:
            said = in_one_line(error).partition(". ")[0]
            refused.append((row["file"], said.replace(path, row["file"])))
            continue
        found.append(
            Answer(
                file=row["file"],
                device=row["device"],
                devices=int(row["gpus"]),
                measured_s=float(row["step_time_s"]),
                predicted_s=answer.step_time_s,
                measured_bytes=float(row["memory_gib"] or 0) * GIBI,
                predicted_bytes=answer.memory_bytes_per_device,
                lengths_known=request.mean_seq_len is not None,
                suspect=row["note"].startswith("suspect"),
            )
        )
    return found, refused


def _formats() -> Iterator[str]:
    for name in RECIPES:
        words = vocabulary(name)
        source = words.source.replace("|", "\\|")
        yield f"| {words.title} | {words.version} | {len(words.fields)} | {words.stack} | {source} |"


def _group(title: str, rows: Sequence[Answer]) -> str:
    memory = [abs(row.memory_error) for row in rows if row.measured_bytes]
    times = [abs(row.time_error) for row in rows]
    signed = statistics.median(row.time_error for row in rows)
    within = sum(error <= TIME_TARGET for error in times) / len(times)
    shown = f"{statistics.median(memory):.0%} ({len(memory)})" if memory else "-"
    return (
        f"| {title} | {len(rows)} | {statistics.median(times):.0%} | {signed:+.0%} | {within:.0%} | {shown} |"
    )


def page(
    found: Sequence[Answer], refused: Sequence[tuple[str, str]], sources: Sequence[Mapping[str, str]]
) -> str:
    """The page."""
    projects = sorted({row.file.partition("/")[0] for row in found})
    known = [row for row in found if row.lengths_known]
    groups = [
        _group("lengths of the samples known", known),
        *(
            _group(f"- {name}", own)
            for name in projects
            if (own := [r for r in known if r.file.startswith(f"{name}/")])
        ),
        _group(
            "lengths not known: every row taken to be full", [row for row in found if not row.lengths_known]
        ),
        _group("all", found),
    ]
    rows = [
        f"| {row.file} | {row.devices} x {row.device} | {row.measured_s:.3g} | {row.predicted_s:.3g} | "
        f"{row.time_error:+.0%} | {'' if math.isnan(row.memory_error) else f'{row.memory_error:+.0%}'} | "
        f"{'yes' if row.lengths_known else 'no'} |"
        for row in found
    ]
    repositories = {row["repository"] for row in sources}
    return "\n".join(
        [
            "# Recipes of other projects",
            "",
            "`precision-time predict FILE` reads the recipes of these projects, and the commands that name them"
            " ([guide](../guides/schedulers.md#recipes-of-other-projects)). Keys, values and defaults stand in a data file"
            " for each project, as of the version named here.",
            "",
            "| project | defaults of version | fields | stack | read from |",
            "|---|---|---:|---|---|",
            *_formats(),
            "",
            f"The tests hold {len(sources)} public recipes of {len(repositories)} repositories: keys and values"
            " written anew, each with its commit and licence (`packages/integrations/tests/recipes/sources.csv`). All"
            " are read, or refused with the reason.",
            "",
            "## Answers beside published figures",
            "",
            "Projects that publish a time or a peak of memory for a recipe: litgpt, Unsloth, ms-swift. Each recipe is"
            " asked as it stands, with the device of its publisher alone. Their steps begin with compilation, or have"
            " evaluations between them, and most do not say how long their samples are. None of these rows is in the corpus. Error of"
            " a step, median:",
            "",
            "| recipes | n | median error | median, signed | within 20 % | memory, median error (n) |",
            "|---|---:|---:|---:|---:|---:|",
            *groups,
            "",
            f"Targets: {TIME_TARGET:.0%} of a step's time, {MEMORY_TARGET:.0%} of memory. The time is within it where"
            " the lengths are known. Memory is computed for rows of the stated length, the longest that may come. Heads and"
            " losses in chunks (Unsloth, Liger) and layers' inputs in the memory of the host (Unsloth) are in it.",
            "",
            "| recipe | devices | measured [s] | predicted [s] | error | memory | lengths known |",
            "|---|---|---:|---:|---:|---:|---|",
            *rows,
            "",
            f"Without an answer, {len(refused)}: "
            + "; ".join(f"{file} ({why})" for file, why in dict.fromkeys(refused))
            + ".",
            "",
        ]
    )


def main() -> None:
    """Write the page, or print it."""
    found, refused = answers()
    sources = list(csv.DictReader((TESTS / "sources.csv").read_text().splitlines()))
    text = page(found, refused, sources)
    if "--write" in sys.argv:
        write_page(PAGE, text)
    else:
        print(text)


if __name__ == "__main__":
    main()
