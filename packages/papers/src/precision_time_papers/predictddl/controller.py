"""The controller and its task checker: requests in, predicted times out, one or a thousand at once."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np

from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import load_corpus
from precision_time.cost.job import Job, group_key
from precision_time.errors import ConfigError, NotFittedError, PrecisionTimeError, in_one_line
from precision_time.forks import cached_property
from precision_time.learn.table import JobTable, job_table
from precision_time.request.datasets import OTHER, DatasetFacts, dataset_types
from precision_time_papers.predictddl.datasets import dataset_distance

from ..ghn.weights import GhnWeights
from .columns import PRECISION, inputs_of, picked
from .contract import Answer, Outcome, PredictorName, Refusal, TaskMatch
from .embeddings import embedding_of_graph, ghn_version, probe_distance, probe_embeddings, same_probe
from .registry import Registry, TrainedType
from .regressors import Floats, Regressor, TrainedVariant
from .requests import PredictDDLRequest, Resolved, resolve
from .servers import ServersNeeded, servers_needed
from .trainer import TypeRuns, input_columns, rows_by_type, train_and_save

_Predictor = tuple[str, int | None, str, str | None, bool]
"""Dataset type, version, variant and regressor that serve a request, and whether they stand in for others."""
_Resolved = tuple[int, Resolved, TaskMatch]
"""A request's place in its batch, and what was found for it."""
_FEW_ARCHITECTURES = 30
"""Below, errors on the folds of the choice flatter much (docs/devdocs/papers.md)."""
_BLIND_NOTE = "is blind to precision and software: every precision gets the same answer"
FARTHEST = 3.0
"""A dataset farther than this from every trained one is not answered for."""
_SHARED = "one GHN is shared by all dataset types: the embedding part of the distance is 0"


@dataclass(kw_only=True, slots=True)
class PriceCache:
    """Prices of the jobs that were needed last; one per service, so that they go when the service goes."""

    size: int = 4096
    """Jobs remembered at most; one batch may exceed it while it is answered."""
    _tables: OrderedDict[Hashable, tuple[Job, JobTable]] = field(default_factory=OrderedDict)
    """Each job priced; the job is kept because its key names parts of it by identity."""

    def table(self, jobs: Sequence[Job]) -> JobTable:
        """`job_table` of the jobs; those priced before are not priced again."""
        keys = [(group_key(job), job.layout.micro_batch_size) for job in jobs]
        new = {key: job for key, job in zip(keys, jobs, strict=True) if key not in self._tables}
        if new:
            priced = job_table([*new.values()])
            for row, (key, job) in enumerate(new.items()):
                self._tables[key] = (job, priced.take(np.array([row])))
        for key in keys:
            self._tables.move_to_end(key)
        rows = [self._tables[key][1] for key in keys]
        while len(self._tables) > self.size:
            self._tables.popitem(last=False)
        return JobTable.together(rows)


@dataclass(kw_only=True)
class PredictDDL:
    """Predicted times of training runs, by a predictor per dataset type.

    Holds what it has read and trained; the registry on disk is the only state that others see.
    """

    registry: Registry = field(default_factory=Registry.default)
    measurements: Sequence[Measurement] | None = None
    """Runs to train from where no predictor serves; None for the corpus and the user's own store."""
    train: bool = True
    """Whether a missing predictor may be trained on the spot."""
    ghn: GhnWeights | None = None
    """Hypernetwork of the dataset types that are asked for: their predictors must have been trained under it,
    and how far it is from that of a substitute counts in the distance. None for whichever a predictor has."""
    progress: Callable[[str], None] = lambda _: None
    """Called with a text on what is being done."""
    _prices: PriceCache = field(default_factory=PriceCache, init=False, repr=False)

    @overload
    def predict(self, requests: PredictDDLRequest) -> Answer: ...
    @overload
    def predict(self, requests: Sequence[PredictDDLRequest]) -> list[Answer | Refusal]: ...
    def predict(
        self, requests: PredictDDLRequest | Sequence[PredictDDLRequest]
    ) -> Answer | list[Answer | Refusal]:
        """The time of one run, or of each of several.

        Args:
            requests: One request, or a batch: of a batch every request that cannot be answered gives a
                `Refusal` in its place, and the others are answered.

        Raises:
            UnknownNameError: Model, dataset or precision of a single request is unknown.
            ConfigError: Its fields do not fit together, or it is not data parallel.
            CaptureError: Its model has no graph, or an empty one.
            NotFittedError: No predictor serves its dataset and none can be trained, or its file is damaged.
        """
        if isinstance(requests, PredictDDLRequest):
            answer = self.predict_each([requests])[0]
            if isinstance(answer, Exception):
                raise answer
            return answer
        return [
            Refusal(name=request.name, error=in_one_line(answer)) if isinstance(answer, Exception) else answer
            for request, answer in zip(requests, self.predict_each(requests), strict=True)
        ]

    def predict_each(self, requests: Sequence[PredictDDLRequest]) -> list[Answer | Exception]:
        """The time of each run, or the error of `predict` for it."""
        matches: dict[object, TaskMatch | PrecisionTimeError] = {}
        answers: dict[int, Answer | Exception] = {}
        served: dict[_Predictor, list[_Resolved]] = defaultdict(list)
        for place, request in enumerate(requests):
            try:
                resolved = resolve(request)
                match = self._match(resolved, matches)
            except Exception as error:  # noqa: BLE001 - one request never stops the others
                answers[place] = error
                continue
            stands_in = match.outcome is Outcome.CLOSEST
            key: _Predictor = (match.used, request.version, request.variant, request.regressor, stands_in)
            served[key].append((place, resolved, match))
        for key, items in served.items():
            answers |= self._serve(key, items)
        return [answers[place] for place in range(len(requests))]

    def _serve(self, key: _Predictor, items: Sequence[_Resolved]) -> dict[int, Answer | Exception]:
        """Answers by place; where one of several requests fails, each is answered alone."""
        used, version, variant, regressor, stands_in = key
        try:
            trained = self._load(used, version, stands_in=stands_in)
            pairs = [(item, match) for _, item, match in items]
            found = _answers(trained, variant, regressor, pairs, self._prices)
        except Exception as error:  # noqa: BLE001 - one request never stops the others
            if len(items) == 1 or isinstance(error, PrecisionTimeError):
                return {place: error for place, _, _ in items}
            return {place: answer for item in items for place, answer in self._serve(key, [item]).items()}
        return {place: answer for (place, _, _), answer in zip(items, found, strict=True)}

    def _match(self, item: Resolved, known: dict[object, TaskMatch | PrecisionTimeError]) -> TaskMatch:
        key = (item.wanted, item.facts)
        if key not in known:
            try:
                known[key] = self._find(item)
            except PrecisionTimeError as error:
                known[key] = error
        found = known[key]
        if isinstance(found, PrecisionTimeError):
            raise found
        return found

    def _find(self, item: Resolved) -> TaskMatch:
        """A predictor that is there, one trained now, or the closest, in this order."""
        name = item.dataset_name
        found = find_task(self.registry, item.wanted, name, item.facts, probe_embeddings(self.ghn))
        if found is not None and found.outcome is Outcome.HIT:
            return found
        rows = self._rows.get(item.wanted) if self.train and item.wanted != OTHER else None
        if rows is not None and rows.enough:
            self.progress(f"training a predictor for {item.wanted}")
            trained = train_and_save(self.registry, rows, ghn=self.ghn, progress=self.progress)
            note = f"trained now on {len(rows.measurements)} runs, kept as version {trained.version}"
            return TaskMatch(outcome=Outcome.TRAINED, wanted=item.wanted, used=item.wanted, notes=(note,))
        if found is not None:
            return found
        why = f": {rows.refusal()}" if rows is not None else ""
        raise NotFittedError(
            f"No predictor serves the dataset {name!r}{why}, and no trained type of its kind is closer than "
            f"{FARTHEST:g}. Trained: {', '.join(self.registry.types()) or 'none'}. To fix: add measured runs "
            "and `precision-time papers predictddl train`, or name a dataset of a trained type."
        )

    @cached_property
    def _rows(self) -> dict[str, TypeRuns]:
        return rows_by_type(load_corpus(local=True) if self.measurements is None else self.measurements)

    def _load(self, dataset_type: str, version: int | None, *, stands_in: bool) -> TrainedType:
        trained = self.registry.load(dataset_type, version)
        under = trained.card.get("ghn_version")
        if under != ghn_version(trained.ghn) or not same_probe(trained.probe, trained.ghn):
            raise NotFittedError(
                f"{trained.label} was trained under the GHN {under}, and this "
                f"installation has {ghn_version()} or reads graphs otherwise: embeddings differ. To fix: "
                f"`precision-time papers predictddl train {dataset_type}`."
            )
        if self.ghn is not None and not stands_in and under != self.ghn.version:
            raise NotFittedError(
                f"{trained.label} was trained under the GHN {under}, and the one given is "
                f"{self.ghn.version}: their embeddings differ. To fix: leave --ghn out, or "
                f"`precision-time papers predictddl train {dataset_type} --ghn FILE`."
            )
        return trained


def find_task(
    registry: Registry, wanted: str, dataset: str, facts: DatasetFacts | None, probe: Floats
) -> TaskMatch | None:
    """The task checker: the predictor that serves a dataset; None if one must be trained (papers.md 3.2).

    The distance is that of the facts of the datasets in standard deviations, plus 1 - CKA of the embeddings
    of the probe networks by both GHNs.

    Args:
        registry: Trained predictors.
        wanted: Dataset type, `OTHER` for none.
        dataset: Its name, for the report.
        facts: Of the dataset; without them only its own type will do.
        probe: Embeddings of the probe networks by the GHN of the request, shape (n_probe, 32).
    """
    trained = registry.types()
    if wanted in trained:
        return TaskMatch(outcome=Outcome.HIT, wanted=wanted, used=wanted)
    known = dataset_types()
    facts = facts or (known[wanted].example if wanted in known else None)
    modality = known[wanted].modality if wanted in known else facts.modality if facts else ""
    near = sorted(
        (dataset_distance(facts, known[name].example), name)
        for name in trained
        if facts is not None and name in known and modality in ("", known[name].modality)
    )
    best: tuple[float, float, float, str] | None = None
    for distance, name in near:
        if distance > FARTHEST or (best is not None and distance >= best[0]):
            break  # the GHNs can only add to it
        apart = probe_distance(probe, registry.load(name).probe)
        best = min(best or (math.inf, 0.0, 0.0, ""), (distance + apart, distance, apart, name))
    if best is None or best[0] > FARTHEST:
        return None
    _, distance, apart, used = best
    note = f"no predictor for {dataset!r}: that for {used!r} is closest, {distance + apart:.2f} away"
    return TaskMatch(
        outcome=Outcome.CLOSEST,
        wanted=dataset,
        used=used,
        data_distance=distance,
        embedding_distance=apart,
        notes=(note,) if apart else (note, _SHARED),
    )


def answer_batch(
    service: PredictDDL, items: Sequence[PredictDDLRequest | Refusal]
) -> list[Answer | ServersNeeded | Refusal]:
    """Answers to what `requests.read_batch` read, in its order; unreadable items stay as they are.

    A request with a deadline is answered by the numbers of servers that meet it.
    """
    timed = [item for item in items if isinstance(item, PredictDDLRequest) and item.deadline is None]
    answers = iter(service.predict(timed))
    found: list[Answer | ServersNeeded | Refusal] = []
    for item in items:
        if isinstance(item, Refusal):
            found.append(item)
        elif item.deadline is None:
            found.append(next(answers))
        else:
            try:
                found.append(servers_needed(service, item))
            except Exception as error:  # noqa: BLE001 - one request never stops the others
                found.append(Refusal(name=item.name, error=in_one_line(error)))
    return found


def _answers(
    trained: TrainedType,
    variant: str,
    regressor: str | None,
    items: Sequence[tuple[Resolved, TaskMatch]],
    prices: PriceCache,
) -> list[Answer]:
    """Answers of one regressor for all requests that it serves."""
    if variant not in trained.variants:
        raise NotFittedError(
            f"{trained.label} holds no {variant!r}, but {', '.join(trained.variants)}. To fix: use one of "
            f"them, or `precision-time papers predictddl train {trained.dataset_type}`."
        )
    model = trained.variants[variant]
    kind = regressor or model.best
    if kind not in model.regressors:
        raise ConfigError(
            f"{trained.label} holds no {kind!r} regressor, but {', '.join(model.regressors)}. To fix: use "
            "one of them, or train a version with it."
        )
    fitted = model.regressors[kind]
    jobs = [item.job for item, _ in items]
    priced = prices.table(jobs) if variant == PRECISION else None
    names, values = input_columns(jobs, priced, ghn=trained.ghn)
    if not {*model.names} <= {*inputs_of(variant, names)}:  # predictors of older releases read fewer
        raise NotFittedError(
            f"{trained.label} reads other inputs than this version of precision-time makes. To fix: "
            f"`precision-time papers predictddl train {trained.dataset_type}`."
        )
    x = picked(names, values, model.names)
    seconds = fitted.predict(x, None if priced is None else priced.analytical_s)
    predictor = PredictorName(
        dataset_type=trained.dataset_type,
        version=trained.version,
        variant=variant,
        regressor=kind,
        target=fitted.target,
    )
    errors = tuple(float(model.scores[kind][name]) for name in ("median_ape_percent", "p90_ape_percent"))
    notes = _beyond(fitted, model, x)
    known = int(trained.card.get("architectures", 0))
    if known < _FEW_ARCHITECTURES:
        few = (
            f"trained on {known} architectures only: the usual error is of the folds on which the regressor "
            "was chosen, new architectures may fare much worse"
        )
        notes = [[*remarks, few] for remarks in notes]
    return [
        _answer(item, match, float(step), predictor, errors, remarks)
        for (item, match), step, remarks in zip(items, seconds, notes, strict=True)
    ]


def _answer(
    item: Resolved,
    match: TaskMatch,
    step_time_s: float,
    predictor: PredictorName,
    errors: tuple[float, ...],
    beyond: Iterable[str],
) -> Answer:
    request, steps = item.request, item.steps_per_epoch
    epochs = request.epochs or 1.0
    run_steps = request.steps or (None if steps is None else steps * epochs)
    notes = [*match.notes, *item.notes, *beyond]
    if predictor.variant != PRECISION:
        notes.append(f"{predictor.variant} {_BLIND_NOTE}")
    if run_steps is None:
        notes.append("samples of the dataset not known: no training time")
    return Answer(
        name=request.name,
        model=item.job.workload.name,
        precision=item.job.precision.name,
        step_time_s=step_time_s,
        steps_per_epoch=steps,
        epochs=(request.steps / steps if steps else None) if request.steps else epochs,
        training_time_s=None if run_steps is None else run_steps * step_time_s,
        predictor=predictor,
        task=match,
        expected_error_percent=errors[0],
        p90_error_percent=errors[1],
        unknown_ops=dict(embedding_of_graph(item.job.workload.graph).unknown),
        substitutions=tuple(notes),
    )


def _beyond(fitted: Regressor, model: TrainedVariant, x: Floats) -> list[list[str]]:
    """Per request, in words: inputs outside the training data, and answers that were bounded."""
    outside = fitted.inputs.outside(x)
    is_embedding = np.array([name.startswith("ghn") for name in model.names])
    target = fitted.raw_target(x)
    held = (target < fitted.low) | (target > fitted.high)
    found: list[list[str]] = []
    for row in range(len(x)):
        words = [model.names[place] for place in np.flatnonzero(outside[row] & ~is_embedding)]
        notes = [f"beyond what training saw: {', '.join(words)}"] if words else []
        parts = int((outside[row] & is_embedding).sum())
        if parts:
            notes.append(f"the architecture is unlike those of training in {parts} parts of its embedding")
        if held[row]:
            notes.append("the regressor left the range of measured times: its answer is the bound")
        found.append(notes)
    return found
