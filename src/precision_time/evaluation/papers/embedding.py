"""What the embedding of PredictDDL's architectures is worth: beside sums, by hypernetwork, across data sets.

`scripts/embedding_study.py` keeps what the studies measure in docs/reference/embedding.json, and
`embedding_sections` makes tables of that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...corpus.jobs import job_of
from ...corpus.measurement import Measurement
from ...corpus.splits import SplitBy, group_numbers, grouped_folds
from ...cost.job import Job
from ...papers.ghn.architecture import architecture_of
from ...papers.ghn.vocabulary import vocabulary
from ...papers.ghn.weights import GhnWeights, initial_weights
from ...papers.predictddl.columns import (
    CLUSTER_COLUMNS,
    EMBEDDING,
    SIZE_COLUMNS,
    cluster_columns,
)
from ...papers.predictddl.embeddings import blind_names, job_embeddings, probe_distance
from ...papers.predictddl.fitting import QUICK, Examples, FitSettings, choose
from ...papers.predictddl.regressors import Floats
from ...papers.predictddl.trainer import WHOLE_EMBEDDING
from ..pricing import Progress, silent
from ..tables import Metric, ReportTable, Section, columns_of

SETTINGS = replace(QUICK, kinds=("svr",), targets=("log",), most_rows=1000)
"""The regressor that wins nearly always; its settings are chosen inside each training part."""
RESULT = Path(__file__).resolve().parents[4] / "docs" / "reference" / "embedding.json"
"""Written by `scripts/embedding_study.py`."""
THREE = SIZE_COLUMNS[:3]
ROWS: Mapping[str, tuple[str, Callable[[Measurement], bool]]] = {
    "torchvision": (
        "torchvision networks in fp32, 1 to 4 GPUs (pytorch-gpu-benchmark)",
        lambda item: item.source == "pytorch-gpu-benchmark" and item.precision == "fp32",
    ),
    "timm": ("timm networks under autocast, one GPU (timm)", lambda item: item.source == "timm"),
}
UNTRAINED = (0, 7, 8)
"""Seeds of hypernetworks that were never trained; all but the first on the smaller rows only."""
PAPER = "embedding alone, as in the paper"
SUMS, FOUR = "three sums alone", "four sums alone"
WINNER = "predictddl-size: embedding as one input, four sums"


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """One choice of inputs beside cluster and batch, and how the embedding is taken."""

    embedding: str
    """Whose: `trained`, `untrained-<seed>`, `histogram` or none."""
    sums: tuple[str, ...]
    whole: bool = True
    """All columns of the embedding count as one input; else each of its principal components does."""


WAYS: Mapping[str, Way] = {
    "no architecture": Way(embedding="", sums=()),
    PAPER: Way(embedding="trained", sums=(), whole=False),
    SUMS: Way(embedding="", sums=THREE),
    FOUR: Way(embedding="", sums=SIZE_COLUMNS),
    "embedding and three sums, each component an input": Way(embedding="trained", sums=THREE, whole=False),
    "embedding as one input, three sums": Way(embedding="trained", sums=THREE),
    WINNER: Way(embedding="trained", sums=SIZE_COLUMNS),
    "the same by a hypernetwork that was never trained": Way(
        embedding=f"untrained-{UNTRAINED[0]}", sums=SIZE_COLUMNS
    ),
    "the same, shares of primitives for the embedding": Way(embedding="histogram", sums=SIZE_COLUMNS),
}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rows:
    """Measured runs with what any way may read."""

    jobs: tuple[Job, ...]
    seconds: Floats
    groups: np.ndarray[Any, Any]
    cluster: Floats
    size: Floats

    @classmethod
    def of(cls, items: Sequence[Measurement]) -> Rows:
        """The rows of usable measurements."""
        jobs = tuple(job_of(item) for item in items)
        return cls(
            jobs=jobs,
            seconds=np.array([item.step_time_s for item in items]),
            groups=group_numbers(items, by=SplitBy.MODEL),
            cluster=cluster_columns(jobs)[1],
            size=job_embeddings(jobs, annotated=False)[1][:, -len(SIZE_COLUMNS) :],
        )

    def embedding(self, which: str, ghns: Mapping[str, GhnWeights | None]) -> Floats:
        """Vectors of the architectures, shape (n, 32), or shares of primitives."""
        if which == "histogram":
            return np.stack([_shares_of_primitives(job) for job in self.jobs])
        return job_embeddings(self.jobs, annotated=False, ghn=ghns[which])[1][:, : len(blind_names())]

    def examples(self, sums: Sequence[str], embedding: Floats | None) -> Examples:
        """What a way learns from."""
        chosen = [SIZE_COLUMNS.index(name) for name in sums]
        parts = [self.cluster, self.size[:, chosen]]
        names = [*CLUSTER_COLUMNS, *sums]
        if embedding is not None:
            parts.append(embedding)
            names += [f"{EMBEDDING}{place}" for place in range(embedding.shape[1])]
        return Examples(
            x=np.column_stack(parts),
            names=tuple(names),
            seconds=self.seconds,
            analytical_s=None,
            groups=self.groups,
            weights=np.ones(len(self.seconds)),
        )


def _shares_of_primitives(job: Job) -> Floats:
    graph = architecture_of(job.workload.graph)
    counts = np.bincount(graph.primitives, weights=graph.stands_for, minlength=len(vocabulary().primitives))
    shares: Floats = counts / counts.sum()
    return shares


def errors_percent(examples: Examples, settings: FitSettings, *, seed: int, folds: int = 5) -> Floats:
    """Absolute errors [%] of rows whose architecture was not fitted, shape (n,)."""
    fold_of = grouped_folds(examples.groups, num_folds=folds, seed=seed)
    predicted = np.empty(len(examples.x))
    for fold in range(folds):
        outside = fold_of == fold
        chosen = choose(examples.take(~outside), replace(settings, seed=seed))
        predicted[outside] = chosen.regressors[chosen.best].predict(examples.x[outside])
    errors: Floats = 100.0 * np.abs(predicted / examples.seconds - 1.0)
    return errors


def summary(errors: Sequence[Floats]) -> dict[str, Any]:
    """Number of rows, and mean and median error over them: mean and deviation over the seeds."""
    means, medians = ([float(f(one)) for one in errors] for f in (np.mean, np.median))
    return {
        "n": len(errors[0]),
        "seeds": len(errors),
        "mean": float(np.mean(means)),
        "mean_spread": float(np.std(means)),
        "median": float(np.mean(medians)),
        "median_spread": float(np.std(medians)),
    }


def way_errors(rows: Rows, way: Way, ghns: Mapping[str, GhnWeights | None], *, seeds: int) -> dict[str, Any]:
    """`summary` of one way, over `seeds` draws of folds."""
    embedding = rows.embedding(way.embedding, ghns) if way.embedding else None
    whole = {**WHOLE_EMBEDDING} if way.whole and embedding is not None else {}
    settings = replace(SETTINGS, **whole)
    if embedding is None:
        settings = replace(settings, ranks=(1,))  # nothing to project: one is enough
    examples = rows.examples(way.sums, embedding)
    return summary([errors_percent(examples, settings, seed=seed) for seed in range(seeds)])


def similarity(rows: Rows, first: GhnWeights | None, second: GhnWeights | None) -> float:
    """Linear CKA of the embeddings that two hypernetworks give to the distinct networks of the rows."""
    distinct = [*{id(job.workload.graph): job for job in rows.jobs}.values()]
    one, other = (
        job_embeddings(distinct, annotated=False, ghn=ghn)[1][:, : len(blind_names())]
        for ghn in (first, second)
    )
    return 1.0 - probe_distance(one, other)


def reuse_errors(own: Rows, other: Rows, *, seeds: int) -> dict[str, dict[str, Any]]:
    """Errors on the rows of one data-set type, by predictors of its own and of the other type.

    Args:
        own: Rows that are asked for.
        other: Rows of the type that stands in.
        seeds: Draws of folds and rows.

    Returns:
        By inputs: `own`, architectures held out; `other`, the substitute, which was fitted without any row of
        an architecture that is asked for.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, sums, settings in (
        ("predictddl", (), SETTINGS),
        ("predictddl-size", SIZE_COLUMNS, replace(SETTINGS, **WHOLE_EMBEDDING)),
    ):
        asked, fitted = (
            rows.examples(sums, rows.embedding("trained", {"trained": None})) for rows in (own, other)
        )
        known = {job.workload.graph.name for job in own.jobs}
        kept = np.array([job.workload.graph.name not in known for job in other.jobs])
        instead = []
        for seed in range(seeds):
            chosen = choose(fitted.take(kept), replace(settings, seed=seed))
            predicted = chosen.regressors[chosen.best].predict(asked.x)
            instead.append(100.0 * np.abs(predicted / asked.seconds - 1.0))
        held_out = [errors_percent(asked, settings, seed=seed) for seed in range(seeds)]
        found[name] = {"own": summary(held_out), "other": summary(instead)}
    return found


def made_ghns(ghns: Mapping[str, GhnWeights]) -> dict[str, GhnWeights | None]:
    """The shipped hypernetwork (`trained`), those given, and untrained ones, by name."""
    untrained = {f"untrained-{seed}": initial_weights(seed) for seed in UNTRAINED}
    return {"trained": None, **ghns, **untrained}


def unseen_study(
    measurements: Sequence[Measurement], *, seeds: Mapping[str, int], progress: Progress = silent
) -> dict[str, Any]:
    """Errors of every way on architectures never seen.

    Args:
        measurements: Usable rows of the corpus.
        seeds: Draws of folds of `torchvision` and `timm`.
        progress: Called with a line on what is being done.
    """
    ghns, found = made_ghns({}), {}
    for key, (_, wanted) in ROWS.items():
        rows = Rows.of([item for item in measurements if wanted(item)])
        results = {}
        for name, way in WAYS.items():
            progress(f"{key}: {name}")
            results[name] = way_errors(rows, way, ghns, seeds=seeds[key])
        found[key] = {"architectures": int(rows.groups.max()) + 1, "ways": results}
    return found


def ghn_study(
    measurements: Sequence[Measurement],
    ghns: Mapping[str, GhnWeights],
    *,
    seeds: int,
    progress: Progress = silent,
) -> dict[str, Any]:
    """How like the shipped hypernetwork others are, and the errors with each in its place.

    Args:
        measurements: Usable rows of the corpus.
        ghns: Hypernetworks of data types by name, beside untrained ones.
        seeds: Draws of folds.
        progress: Called with a line on what is being done.
    """
    made = made_ghns(ghns)
    rows = Rows.of([item for item in measurements if ROWS["torchvision"][1](item)])
    found = {}
    for name in (name for name in made if name != "trained"):
        progress(f"hypernetwork: {name}")
        way = Way(embedding=name, sums=SIZE_COLUMNS)
        found[name] = {
            "cka": similarity(rows, None, made[name]),
            **way_errors(rows, way, made, seeds=seeds),
        }
    return found


def reuse_study(
    reused: Mapping[str, tuple[str, Sequence[Measurement]]], *, seeds: int, progress: Progress = silent
) -> dict[str, Any]:
    """Errors of predictors of one data-set type asked for another.

    Args:
        reused: Name to (which type stands in, rows), in pairs that stand in for each other.
        seeds: Draws of folds.
        progress: Called with a line on what is being done.
    """
    sets = {name: Rows.of(rows) for name, (_, rows) in reused.items()}
    found = {}
    for name, (other, _) in reused.items():
        progress(f"reuse: {name} by {other}")
        found[name] = {"by": other, **reuse_errors(sets[name], sets[other], seeds=seeds)}
    return found


def embedding_sections() -> tuple[Section, ...]:
    """Tables of what `scripts/embedding_study.py` measured, read from docs/reference/embedding.json."""
    study = json.loads(RESULT.read_text(encoding="utf-8"))
    how = f"Written by `{study['card']['command']}` on {study['card']['created']} and quoted from there."
    return (_unseen_section(study, how), _ghn_section(study, how), _reuse_section(study, how))


def _unseen_section(study: Mapping[str, Any], how: str) -> Section:
    unseen = study["unseen"]
    tables, said, figures = [], [], {}
    for key, found in unseen.items():
        ways, title = found["ways"], ROWS[key][0]
        tables.append(
            ReportTable(
                title=f"Unseen architectures: {title}",
                columns=columns_of(f"inputs beside cluster and batch | {_COLUMNS}"),
                rows=tuple((name, *_cells(item)) for name, item in ways.items()),
                note=f"Folds hold out whole architectures ({found['architectures']} in all). SVR on log "
                "seconds, settings chosen in inner folds. Sums: FLOPs, parameters, activations; a fourth: "
                f"operators. {how}",
            )
        )
        said += [f"{key}: {_against(ways, reference)}" for reference in (SUMS, FOUR)]
        figures |= {
            f"embedding.{key}.{short}.{which}_percent": Metric(
                value=ways[name][which], spread=ways[name][f"{which}_spread"]
            )
            for short, name in (("paper", PAPER), ("sums", SUMS), ("size", WINNER))
            for which in ("mean", "median")
        }
    return Section(
        key="embedding",
        title="What the embedding adds to sums",
        headline=f"predictddl-size on architectures never seen. {'; '.join(said)}.",
        tables=tuple(tables),
        figures=figures,
    )


def adds(found: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, bool]:
    """Whether mean and median error are lower than the reference's by more than the spreads of both."""
    return {
        which: reference[which] - found[which] > found[f"{which}_spread"] + reference[f"{which}_spread"]
        for which in ("mean", "median")
    }


def _against(ways: Mapping[str, Any], reference: str) -> str:
    found, other = ways[WINNER], ways[reference]
    clear = adds(found, other)
    words = [
        f"{which} {found[which]:.1f} against {other[which]:.1f} % "
        + (
            "(lower, beyond the spreads)"
            if clear[which]
            else "(lower, within the spreads)"
            if found[which] < other[which]
            else "(not lower)"
        )
        for which in ("mean", "median")
    ]
    return f"against {reference} {', '.join(words)}"


def _ghn_section(study: Mapping[str, Any], how: str) -> Section:
    trained = study["unseen"]["torchvision"]["ways"][WINNER]
    others = study["ghns"]
    cards = study["card"]["ghns"]
    rows = [("shipped, digits of 8 x 8", "3500", 1.0, *_cells(trained))]
    for name, item in others.items():
        steps = "0" if name.startswith("untrained") else str(cards[name]["steps"])
        rows.append((name, steps, item["cka"], *_cells(item)))
    apart = {
        which: max(abs(item[which] - trained[which]) - item[f"{which}_spread"] for item in others.values())
        for which in ("mean", "median")
    }
    inside = all(apart[which] <= trained[f"{which}_spread"] for which in apart)
    verdict = (
        "no hypernetwork, trained or not, moves mean or median beyond the spreads of the seeds: one "
        "serves all data types"
        if inside
        else "hypernetworks differ by more than the spreads of the seeds"
    )
    return Section(
        key="embedding-ghn",
        title="One hypernetwork for all data types",
        headline=f"The paper trains one per data set. predictddl-size on the torchvision rows: {verdict}.",
        tables=(
            ReportTable(
                title="Hypernetworks in its place",
                columns=columns_of(f"hypernetwork | >steps | >CKA with the shipped one | {_COLUMNS}"),
                rows=tuple(rows),
                note="CKA (Kornblith et al., 2019) is 1 where two hypernetworks find the same networks "
                "alike. The largest difference that a data type could make is that to no training at all. "
                f"CIFAR-10 and Tiny-ImageNet themselves cannot be had offline. {how}",
            ),
        ),
    )


def _reuse_section(study: Mapping[str, Any], how: str) -> Section:
    rows = tuple(
        (name, found["by"], variant, *_cells(found[variant]["own"]), *_cells(found[variant]["other"]))
        for name, found in study["reuse"].items()
        for variant in ("predictddl", "predictddl-size")
    )
    said = [
        f"{name}: {found[variant]['own']['median']:.0f} % by its own type's predictor, "
        f"{found[variant]['other']['median']:.0f} % by that for {found['by']} (medians, {variant})"
        for name, found in study["reuse"].items()
        for variant in ("predictddl-size",)
    ]
    own = " | ".join(f"{name}, own type" for name in _COLUMNS.split(" | "))
    other = " | ".join(f"{name}, substitute" for name in _COLUMNS.split(" | "))
    return Section(
        key="embedding-reuse",
        title="A predictor of one data-set type asked for another",
        headline="; ".join(said) + ".",
        tables=(
            ReportTable(
                title="Reuse across data-set types",
                columns=columns_of(f"asked for | substitute | variant | {own} | {other}"),
                rows=rows,
                note="Own type: architectures held out. Substitute: fitted on the other type's rows without "
                f"the networks that are asked for, as the task checker's `closest` does. {how}",
            ),
        ),
    )


_COLUMNS = ">n | >mean % | >± seeds | >median % | >± seeds"


def _cells(item: Mapping[str, Any]) -> tuple[float, ...]:
    names = ("n", "mean", "mean_spread", "median", "median_spread")
    return tuple(item[name] for name in names)
