"""Performance models on measured public data and calibration on held-out sources: docs/reference/ray.md.

Pollux, Sia and Gavel have the shape of the study on Ray (Filippini et al., SEAA 2023): step times of
data-parallel training over devices, nodes and batch. What stands between the marks of that page is written
here, the rest by hand, and ray-public.json beside it. Priced rows and held-out predictions come from the
report's cache. Needs the extras `learners` and `plots`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibration_study import held_out, scores, table_lines
from papers_tables.ray import (
    CAMPAIGNS,
    RULES,
    campaign_tables,
    comparisons,
    tasks_of,
    verdict,
)
from papers_tables.ray import outcome_of as campaign_outcome
from precision_time.corpus.store import load_corpus
from precision_time.executor import process_map
from precision_time.io import cache_folder
from precision_time.render.document import table_markdown
from precision_time_papers.evaluation.cross_validation import Runs, tree_settings
from precision_time_papers.evaluation.pricing import PricedCorpus, priced_corpus
from precision_time_papers.ray_models.report import time_against
from precision_time_papers.ray_models.techniques import TECHNIQUES
from ray_models_public import (
    BLEND,
    BOUND,
    SCENARIOS,
    Cell,
    Outcome,
    cells_of,
    outcome_of,
    study_cell,
)

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "ray.md"
SUMMARY = PAGE.with_name("ray-public.json")
"""What docs/papers.md quotes."""
CLEAN = ("pollux", "sia")
DRAWN = ("pollux/T4/resnet18-cifar", "sia/A100-SXM4-40GB/bert-base-uncased")
DOTS = 250
PAPER = "3-15"
Value = Callable[[Outcome], float]


def of_technique(name: str) -> Value:
    """The error of one technique."""
    return lambda item: item.by_technique[name]


VALUES: Mapping[str, Value] = {
    "best in selection": lambda item: item.chosen_mape,
    f"mean of the {BLEND} best": lambda item: item.blend_mape,
    "best black box": lambda item: item.by_technique[item.black_box],
    "best grey box": lambda item: item.by_technique[item.grey_box],
    **{TECHNIQUES[name].title: of_technique(name) for name in (*RULES, "forward")},
    "best in hindsight": lambda item: min(item.by_technique.values()),
}


def main() -> None:
    """Run what is asked and write it between the marks of the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("public", "campaign", "calibration"), action="append")
    parser.add_argument("--cells", default="", help="Only cells whose name contains this; printed, not kept.")
    parser.add_argument("--workers", type=int, default=1, help="Processes.")
    parser.add_argument("--most", type=int, help="Configurations of a public cell, drawn at random.")
    asked = parser.parse_args()
    parts = asked.only or ["public", "campaign", "calibration"]
    if "campaign" in parts:
        write_between(PAGE, "campaign", "\n".join(campaign_lines(asked.workers)))
    if parts == ["campaign"]:
        return
    rows = [row for row in load_corpus() if row.usable]
    priced = priced_corpus(rows, progress=tell, folder=cache_folder())
    if "public" in parts:
        text = public_text(priced, asked.cells, asked.workers, asked.most)
        if asked.cells:
            print(text)
        else:
            write_between(PAGE, "public", text)
    if "calibration" in parts:
        write_between(PAGE, "calibration", "\n".join(calibration_lines(priced)))


def tell(text: str) -> None:
    """A word on what is being done."""
    print(text, file=sys.stderr, flush=True)


def write_between(page: Path, part: str, text: str) -> None:
    """Replace what stands between the marks of a part."""
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    content = page.read_text(encoding="utf-8")
    if not pattern.search(content):
        sys.exit(f"{page} has no marks {begin} and {end}")
    page.write_text(pattern.sub(lambda _: f"{begin}\n\n{text.strip()}\n\n{end}", content), encoding="utf-8")


def public_text(priced: PricedCorpus, wanted: str, workers: int, most: int | None) -> str:
    """The tables of public data; plots and the summary are written beside the page."""
    started = time.perf_counter()
    cells = [cell for cell in cells_of(priced.table, most) if wanted in cell.name]
    tasks = [(cell, scenario) for cell in cells for scenario in cell.scenarios]
    outcomes: list[Outcome] = []
    with process_map(workers) as spread:
        for outcome in spread(outcome_of, tasks):
            outcomes.append(outcome)
            done = f"{len(outcomes)} of {len(tasks)}: {outcome.cell}, {outcome.scenario}"
            tell(f"{done}: {outcome.chosen}, {outcome.chosen_mape:.1f} %")
    if not wanted:
        draw(outcomes, cells)
        write_summary(outcomes, most)
    minutes = (time.perf_counter() - started) / 60.0
    return "\n".join(public_lines(outcomes, minutes, workers))


def write_summary(outcomes: Sequence[Outcome], most: int | None) -> None:
    """Write docs/reference/ray-public.json."""
    drawn = "" if most is None else f" Of a larger cell {most} configurations, drawn at random."
    cells = len({item.cell for item in outcomes})
    content = {
        "command": "python packages/papers/studies/ray_models.py --only public"
        + (f" --most {most}" if most else ""),
        "note": (
            f"{len(outcomes)} studies of {cells} cells, {len(TECHNIQUES)} techniques, on points held out; "
            f"extrapolation learns from values up to {BOUND:.0%} of the largest. A cell counts once.{drawn}"
        ),
        "scenarios": [*SCENARIOS],
        "outcomes": [item.summary for item in outcomes],
    }
    SUMMARY.write_text(json.dumps(rounded(content), indent=1) + "\n", encoding="utf-8")


def rounded(value: object) -> object:
    """The same with numbers of four digits."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def public_lines(outcomes: Sequence[Outcome], minutes: float, workers: int) -> Iterator[str]:
    """Markdown of the study on public data."""
    points = sum({item.cell: item.learned + item.predicted for item in outcomes}.values())
    cells = len({item.cell for item in outcomes})
    yield (
        f"{points:,} configurations in {cells} cells (network x device x source), {len(outcomes)} studies of "
        f"{len(TECHNIQUES)} techniques in {minutes:.0f} minutes on {workers} "
        f"process{'es' if workers > 1 else ''}. MAPE of the step time [%] on points held out; a cell counts "
        "once, however many points it has. Interpolation holds out every third interior value of a column; "
        f"extrapolation learns from values up to {BOUND:.0%} of the largest. Techniques are chosen by the "
        f"same question inside the training part. The paper reports {PAPER} % on its own jobs."
    )
    for title, sources in (
        ("Pollux and Sia", CLEAN),
        ("Gavel", ("gavel",)),
        ("All three", (*CLEAN, "gavel")),
    ):
        chosen = [item for item in outcomes if item.source in sources]
        if chosen:
            yield f"\n### {title}\n"
            yield from headline(chosen)
    yield "\n### By network, Pollux and Sia\n"
    yield from by_network([item for item in outcomes if item.source in CLEAN])
    yield "\n### By technique\n\nMean over the cells of Pollux and Sia, best in selection or not.\n"
    yield from by_technique([item for item in outcomes if item.source in CLEAN])
    yield "\n### By cell\n"
    yield from by_cell(outcomes)


def headline(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Means of the scenarios, by how the technique is chosen."""
    yield f"| scenario | cells | {' | '.join(VALUES)} | worst cell |"
    yield f"|---|---:|{'---:|' * len(VALUES)}---|"
    for words in (*SCENARIOS, "interpolation", "extrapolation"):
        group = [item for item in outcomes if item.scenario.startswith(words)]
        if not group:
            continue
        worst = max(group, key=lambda item: item.chosen_mape)
        name = f"**{words}, both**" if words not in SCENARIOS else words
        cells = " | ".join(f"{mean(group, value):.1f}" for value in VALUES.values())
        yield f"| {name} | {len(group)} | {cells} | {worst.chosen_mape:.0f}: {worst.cell} |"


def by_network(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Interpolation and extrapolation of each network, over devices and sources."""
    yield "| network | interpolation | its worst cell | extrapolation | its worst cell |"
    yield "|---|---:|---:|---:|---:|"
    for network in sorted({item.network for item in outcomes}):
        cells = [network]
        for kind in ("interpolation", "extrapolation"):
            group = [item for item in outcomes if item.network == network and item.scenario.startswith(kind)]
            errors = [item.chosen_mape for item in group]
            cells += [f"{np.mean(errors):.1f}", f"{max(errors):.1f}"] if errors else ["-", "-"]
        yield f"| {' | '.join(cells)} |"


def by_technique(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Mean error of every technique in every scenario."""
    yield f"| technique | {' | '.join(SCENARIOS)} |"
    yield f"|---|{'---:|' * len(SCENARIOS)}"
    for name, technique in TECHNIQUES.items():
        cells = []
        for scenario in SCENARIOS:
            errors = [
                item.by_technique[name]
                for item in outcomes
                if item.scenario == scenario and name in item.by_technique
            ]
            cells.append(f"{np.mean(errors):.1f}" if errors else "-")
        yield f"| {technique.title} | {' | '.join(cells)} |"


def by_cell(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Error and technique of every cell and scenario."""
    yield f"| cell | repeats differ by | {' | '.join(SCENARIOS)} |"
    yield f"|---|---:|{'---|' * len(SCENARIOS)}"
    found = {(item.cell, item.scenario): item for item in outcomes}
    for cell in dict.fromkeys(item.cell for item in outcomes):
        noise = next(item.noise_percent for item in outcomes if item.cell == cell)
        cells = []
        for scenario in SCENARIOS:
            item = found.get((cell, scenario))
            cells.append(f"{item.chosen_mape:.1f} {item.chosen}, {item.predicted} predicted" if item else "-")
        yield f"| {cell} | {'-' if noise is None else f'{noise:.1f}'} | {' | '.join(cells)} |"


def mean(outcomes: Sequence[Outcome], value: Value) -> float:
    """Mean over cells."""
    return float(np.mean([value(item) for item in outcomes]))


def draw(outcomes: Sequence[Outcome], cells: Sequence[Cell]) -> None:
    """Write docs/reference/ray-*.svg."""
    folder = PAGE.parent
    (folder / "ray-predicted.svg").write_text(panels(outcomes), encoding="utf-8")
    for number, name in enumerate(DRAWN, start=1):
        cell = next(item for item in cells if item.name == name)
        study = study_cell(cell, "extrapolation, devices")
        (folder / f"ray-devices-{number}.svg").write_text(time_against(study, "devices"), encoding="utf-8")


def panels(outcomes: Sequence[Outcome]) -> str:
    """Predicted against measured, a panel per scenario, as SVG."""
    import io

    from matplotlib import rc_context
    from matplotlib.figure import Figure

    settings = {"svg.fonttype": "none", "svg.hashsalt": "ray", "font.size": 9}
    with rc_context(settings):
        figure = Figure(figsize=(9.0, 2.9), layout="constrained")
        for axes, scenario in zip(figure.subplots(1, len(SCENARIOS)), SCENARIOS, strict=True):
            for sources, color, label in (
                (CLEAN, "#4e79a7", "Pollux, Sia"),
                (("gavel",), "#f28e2b", "Gavel"),
            ):
                group = [item for item in outcomes if item.scenario == scenario and item.source in sources]
                measured, predicted = sampled(group)
                axes.scatter(measured, predicted, s=4, color=color, alpha=0.5, linewidths=0, label=label)
            ends = np.array([0.005, 10.0])
            axes.plot(ends, ends, color="#888888", linewidth=0.7, label="equal")
            axes.set(xscale="log", yscale="log", xlabel="measured [s]", title=scenario)
            axes.set(xlim=ends, ylim=ends)
        figure.axes[0].set(ylabel="predicted [s]")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=7, frameon=False)
        page = io.StringIO()
        figure.savefig(page, format="svg", metadata={"Date": None})
    return page.getvalue()


def sampled(outcomes: Sequence[Outcome]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Some of the points held out, the same on every run."""
    measured = np.concatenate([item.measured_s for item in outcomes])
    predicted = np.concatenate([item.predicted_s for item in outcomes])
    rows = np.random.default_rng(0).permutation(len(measured))[:DOTS]
    return measured[rows], predicted[rows]


def calibration_lines(priced: PricedCorpus) -> Iterator[str]:
    """Markdown of what measured steps are worth."""
    runs = Runs(priced=priced, settings=tree_settings(quick=False), progress=tell, folder=cache_folder())
    yield (
        "A user has the runs of one model in one source. Neither the predictor has seen the model, nor the "
        "prior the user; for clusters (one kind of device of one source, at least 20 configurations) neither "
        "has seen the source. Points are drawn at random three times, others asked: of the same cell (model, "
        "sizes, device, precision, software), on more devices, at another precision, on another device. MAPE "
        "of the step time [%], means over users; Ernest from the same points, where they are of one cell."
    )
    yield ""
    yield from table_lines([*scores(held_out(runs, "model"), held_out(runs, "source"))])


def campaign_lines(workers: int) -> Iterator[str]:
    """Markdown of the stored campaigns: the tables of docs/papers.md."""
    for campaign in CAMPAIGNS:
        if campaign.path.exists():
            with process_map(workers) as spread:
                found = [item for item in spread(campaign_outcome, tasks_of([campaign])) if item is not None]
            yield (
                " ".join([verdict(campaign.title, [item.mean for item in found]), *comparisons(found)]) + "\n"
            )
            yield from map(table_markdown, campaign_tables(campaign, found))


if __name__ == "__main__":
    main()
