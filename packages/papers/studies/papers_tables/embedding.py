"""What the embedding of PredictDDL's architectures is worth: beside sums, by hypernetwork, across datasets.

`packages/papers/studies/embedding_study.py` keeps what the studies measure in
docs/reference/embedding.json, and `embedding_sections` makes tables of that.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from precision_time.arrays import Ints
from precision_time.corpus.jobs import job_of
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.splits import grouped_folds, model_group
from precision_time.render.document import Metric, Section
from precision_time.render.table import CellValue, Table, columns_of
from precision_time.workload.graph import OpGraph
from precision_time.workload.resolve import load_workload
from precision_time_papers.evaluation.pricing import Progress, silent
from precision_time_papers.ghn.architecture import architecture_of
from precision_time_papers.ghn.vocabulary import vocabulary
from precision_time_papers.ghn.weights import GhnWeights, initial_weights
from precision_time_papers.predictddl.columns import (
    CLUSTER_COLUMNS,
    EMBEDDING,
    SIZE_COLUMNS,
    batch_per_device,
    cluster_columns,
    size_columns,
)
from precision_time_papers.predictddl.embeddings import embedding_of_graph, probe_distance
from precision_time_papers.predictddl.fitting import QUICK, Examples, FitSettings, choose
from precision_time_papers.predictddl.regressors import Floats
from precision_time_papers.predictddl.trainer import WHOLE_EMBEDDING

from . import REFERENCE
from .claims import NO_FIGURE, Claim, PaperSection

SETTINGS = replace(QUICK, kinds=("svr",), targets=("log",), most_rows=1000)
"""The regressor that wins nearly always; its settings are chosen inside each training part."""
RESULT = REFERENCE / "embedding.json"
"""Written by `packages/papers/studies/embedding_study.py`."""
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

    graphs: tuple[OpGraph, ...]
    seconds: Floats
    labels: tuple[str, ...]
    """Architecture of each row."""
    cluster: Floats
    cluster_names: tuple[str, ...]
    batch_per_device: Floats

    @classmethod
    def of(cls, items: Sequence[Measurement]) -> Rows:
        """The rows of usable measurements."""
        jobs = [job_of(item) for item in items]
        return cls(
            graphs=tuple(job.workload.graph for job in jobs),
            seconds=np.array([item.step_time_s for item in items]),
            labels=tuple(model_group(item.model) for item in items),
            cluster=cluster_columns(jobs)[1],
            cluster_names=CLUSTER_COLUMNS,
            batch_per_device=np.array([batch_per_device(job) for job in jobs]),
        )

    @classmethod
    def of_campaign(cls, file: Path, side: int) -> Rows:
        """Rows of our own campaign on images of a side: machine type, workers and batch are its cluster.

        The graphs are the catalog's at that side, with a head of 1,000 classes.
        """
        with file.open(encoding="utf-8", newline="") as opened:
            measured = [row for row in csv.DictReader(opened) if row["status"] == "ok" and row["step_time_s"]]
        found = [row for row in measured if json.loads(row["sizes"]).get("side") == side]
        names = [row["model"].rpartition("/")[2] for row in found]
        machines = sorted({row["device"] for row in found})
        cluster = [
            (np.log(float(row["num_workers"])), np.log(float(row["batch_per_worker"])),
             *(float(row["device"] == machine) for machine in machines))
            for row in found
        ]  # fmt: skip
        return cls(
            graphs=tuple(load_workload(name, image_size=side).graph for name in names),
            seconds=np.array([float(row["step_time_s"]) for row in found]),
            labels=tuple(map(model_group, names)),
            cluster=np.array(cluster),
            batch_per_device=np.array([float(row["batch_per_worker"]) for row in found]),
            cluster_names=(
                "cluster.log_workers", "cluster.log_batch", *(f"cluster.{machine}" for machine in machines)
            ),
        )  # fmt: skip

    @property
    def groups(self) -> Ints:
        """The architecture of each row as a number."""
        return np.unique(self.labels, return_inverse=True)[1].astype(np.int64).reshape(-1)

    @property
    def size(self) -> Floats:
        """SIZE_COLUMNS, shape (n, 4)."""
        return size_columns(self.graphs, self.batch_per_device)

    def embedding(self, which: str, ghns: Mapping[str, GhnWeights | None]) -> Floats:
        """Vectors of the architectures, shape (n, 32), or shares of primitives."""
        if which == "histogram":
            return np.stack([_shares_of_primitives(graph) for graph in self.graphs])
        return _vectors(self.graphs, ghns[which])

    def examples(self, sums: Sequence[str], embedding: Floats | None) -> Examples:
        """What a way learns from."""
        chosen = [SIZE_COLUMNS.index(name) for name in sums]
        parts = [self.cluster, self.size[:, chosen]]
        names = [*self.cluster_names, *sums]
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


def _vectors(graphs: Sequence[OpGraph], ghn: GhnWeights | None) -> Floats:
    vectors = [embedding_of_graph(graph, ghn).vector for graph in graphs]
    return np.stack(vectors).astype(np.float64)


def _shares_of_primitives(graph: OpGraph) -> Floats:
    found = architecture_of(graph)
    counts = np.bincount(found.primitives, weights=found.stands_for, minlength=len(vocabulary().primitives))
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
    distinct = [*{id(graph): graph for graph in rows.graphs}.values()]
    return 1.0 - probe_distance(_vectors(distinct, first), _vectors(distinct, second))


def reuse_errors(own: Rows, other: Rows, *, seeds: int) -> dict[str, dict[str, Any]]:
    """Errors on the rows of one dataset type, by predictors of its own and of the other type.

    Args:
        own: Rows that are asked for.
        other: Rows of the type that stands in.
        seeds: Draws of folds and rows.

    Returns:
        By inputs: `own`, architectures held out; `other`, the substitute, fitted without the architectures
        that are asked for.
    """
    found: dict[str, dict[str, Any]] = {}
    shipped: dict[str, GhnWeights | None] = {"trained": None}
    for name, sums, settings in (
        ("predictddl", (), SETTINGS),
        ("predictddl-size", SIZE_COLUMNS, replace(SETTINGS, **WHOLE_EMBEDDING)),
    ):
        asked, fitted = (rows.examples(sums, rows.embedding("trained", shipped)) for rows in (own, other))
        held_out, instead = [], []
        for seed in range(seeds):
            used = replace(settings, seed=seed)
            fold_of = grouped_folds(own.groups, num_folds=5, seed=seed)
            predicted = np.empty((2, len(asked.x)))
            for fold in np.unique(fold_of):
                outside = fold_of == fold
                names = {own.labels[row] for row in np.flatnonzero(outside)}
                kept = np.array([label not in names for label in other.labels])
                for place, part in enumerate((asked.take(~outside), fitted.take(kept))):
                    chosen = choose(part, used)
                    predicted[place, outside] = chosen.regressors[chosen.best].predict(asked.x[outside])
            errors = 100.0 * np.abs(predicted / asked.seconds - 1.0)
            held_out.append(errors[0])
            instead.append(errors[1])
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
    reused: Mapping[str, tuple[str, Rows]], *, seeds: int, progress: Progress = silent
) -> dict[str, Any]:
    """Errors of predictors of one dataset type asked for another.

    Args:
        reused: Name to (which type stands in, rows).
        seeds: Draws of folds.
        progress: Called with a line on what is being done.
    """
    found = {}
    for name, (other, rows) in reused.items():
        progress(f"reuse: {name} by {other}")
        found[name] = {"by": other, **reuse_errors(rows, reused[other][1], seeds=seeds)}
    return found


def embedding_sections() -> tuple[Section, ...]:
    """Tables of what the study measured, read from docs/reference/embedding.json."""
    study = json.loads(RESULT.read_text(encoding="utf-8"))
    how = f"Written by `{study['card']['command']}` on {study['card']['created']} and quoted from there."
    made = {"unseen": _unseen_section, "ghns": _ghn_section, "reuse": _reuse_section}
    return tuple(section(study, how) for part, section in made.items() if part in study)


def _unseen_section(study: Mapping[str, Any], how: str) -> Section:
    unseen = study["unseen"]
    tables, said = [], []
    figures: dict[str, Metric] = {}
    for key, found in unseen.items():
        ways, title = found["ways"], ROWS[key][0]
        tables.append(
            Table(
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
    rows: list[tuple[CellValue, ...]] = [("shipped, digits of 8 x 8", "3500", 1.0, *_cells(trained))]
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
    return PaperSection(
        key="embedding-ghn",
        title="One hypernetwork for all data types",
        claims=(
            Claim(
                claim="a hypernetwork for each dataset (an experiment)",
                paper="-",
                ours=f"{len(others)} others move the mean by at most "
                f"{max(abs(item['mean'] - trained['mean']) for item in others.values()):.1f} points",
                rows=trained["n"],
                verdict="one serves all" if inside else "they differ",
            ),
        ),
        headline=f"The paper trains one per dataset. predictddl-size on the torchvision rows: {verdict}.",
        tables=(
            Table(
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
    claims = tuple(
        Claim(
            claim=f"a predictor of another type serves: {found['by']} for {name}",
            paper="-",
            ours=f"median {found['predictddl-size']['other']['median']:.0f} % in the place of "
            f"{found['predictddl-size']['own']['median']:.0f} %",
            rows=found["predictddl-size"]["other"]["n"],
            verdict=NO_FIGURE,
        )
        for name, found in study["reuse"].items()
    )
    return PaperSection(
        key="embedding-reuse",
        claims=claims,
        title="A predictor of one dataset type asked for another",
        headline="; ".join(said) + ".",
        tables=(
            Table(
                title="Reuse across dataset types",
                columns=columns_of(f"asked for | substitute | variant | {own} | {other}"),
                rows=rows,
                note="Own type: architectures held out. Substitute: fitted on the other type's rows without "
                "the architectures that are asked for, as the task checker's `closest` would. Corpus: fp32, "
                "at most 500 rows of a type. Own: our campaign of 31 networks on two machine types, 32 "
                f"pixels and 16 samples a worker, 64 and 4. {how}",
            ),
        ),
    )


_COLUMNS = ">n | >mean % | >± seeds | >median % | >± seeds"


def _cells(item: Mapping[str, Any]) -> tuple[float, ...]:
    names = ("n", "mean", "mean_spread", "median", "median_spread")
    return tuple(item[name] for name in names)
