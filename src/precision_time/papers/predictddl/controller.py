"""The controller: requests in, predicted times out, one or a thousand at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import overload

import numpy as np

from ...corpus.measurement import Measurement
from ...corpus.store import load_corpus
from ...errors import ConfigError, NotFittedError, PrecisionTimeError, in_one_line
from .columns import BLIND, PRECISION, inputs_of, picked
from .contract import Answer, Outcome, PredictorName, Refusal, TaskMatch
from .datasets import OTHER
from .embeddings import embedding_of_graph, ghn_version, probe_embeddings, same_probe
from .pricing import PriceCache
from .registry import Registry, TrainedType, TrainedVariant
from .regressors import Floats, Regressor
from .requests import PredictDDLRequest, Resolved, resolve
from .task import FARTHEST, find_task
from .trainer import TypeRuns, input_columns, rows_by_type, train_and_save

_Predictor = tuple[str, int | None, str, str | None]
"""Dataset type, version, variant and regressor that serve a request."""
_Resolved = tuple[int, Resolved, TaskMatch]
"""A request's place in its batch, and what was found for it."""
_FEW_ARCHITECTURES = 30
"""Below, errors on the folds of the choice flatter much (docs/devdocs/007-predictddl.md)."""
_BLIND_NOTE = "predictddl is blind to precision and software: every precision gets the same answer"


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
            answer = self._batch([requests])[0]
            if isinstance(answer, Exception):
                raise answer
            return answer
        return [
            Refusal(name=request.name, error=in_one_line(answer)) if isinstance(answer, Exception) else answer
            for request, answer in zip(requests, self._batch(requests), strict=True)
        ]

    def _batch(self, requests: Sequence[PredictDDLRequest]) -> list[Answer | Exception]:
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
            key: _Predictor = (match.used, request.version, request.variant, request.regressor)
            served[key].append((place, resolved, match))
        for key, items in served.items():
            answers |= self._serve(key, items)
        return [answers[place] for place in range(len(requests))]

    def _serve(self, key: _Predictor, items: Sequence[_Resolved]) -> dict[int, Answer | Exception]:
        """Answers by place; where one of several requests fails, each is answered alone."""
        used, version, variant, regressor = key
        try:
            trained = self._load(used, version)
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
        found = find_task(self.registry, item.wanted, name, item.facts, probe_embeddings())
        if found is not None and found.outcome is Outcome.HIT:
            return found
        rows = self._rows.get(item.wanted) if self.train and item.wanted != OTHER else None
        if rows is not None and rows.enough:
            self.progress(f"training a predictor for {item.wanted}")
            trained = train_and_save(self.registry, rows, progress=self.progress)
            note = f"trained now on {len(rows.measurements)} runs, kept as version {trained.version}"
            return TaskMatch(outcome=Outcome.TRAINED, wanted=item.wanted, used=item.wanted, notes=(note,))
        if found is not None:
            return found
        why = f": {rows.refusal()}" if rows is not None else ""
        raise NotFittedError(
            f"No predictor serves the dataset {name!r}{why}, and no trained type of its kind is closer than "
            f"{FARTHEST:g}. Trained: {', '.join(self.registry.types()) or 'none'}. To fix: add measured runs "
            "and `precision-time predictddl train`, or name a dataset of a trained type."
        )

    @cached_property
    def _rows(self) -> dict[str, TypeRuns]:
        return rows_by_type(load_corpus(local=True) if self.measurements is None else self.measurements)

    def _load(self, dataset_type: str, version: int | None) -> TrainedType:
        trained = self.registry.load(dataset_type, version)
        if trained.card.get("ghn_version") != ghn_version() or not same_probe(trained.probe):
            raise NotFittedError(
                f"{trained.label} was trained under the GHN {trained.card.get('ghn_version')}, and this "
                f"installation has {ghn_version()} or reads graphs otherwise: embeddings differ. To fix: "
                f"`precision-time predictddl train {dataset_type}`."
            )
        return trained


def answer_batch(service: PredictDDL, items: Sequence[PredictDDLRequest | Refusal]) -> list[Answer | Refusal]:
    """Answers to what `requests.read_batch` read, in its order; unreadable items stay as they are."""
    answers = iter(service.predict([item for item in items if isinstance(item, PredictDDLRequest)]))
    return [next(answers) if isinstance(item, PredictDDLRequest) else item for item in items]


def _answers(
    trained: TrainedType,
    variant: str,
    regressor: str | None,
    items: Sequence[tuple[Resolved, TaskMatch]],
    prices: PriceCache,
) -> list[Answer]:
    """Answers of one regressor for all requests that it serves."""
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
    names, values = input_columns(jobs, priced)
    if inputs_of(variant, names) != model.names:
        raise NotFittedError(
            f"{trained.label} reads other inputs than this version of precision-time makes. To fix: "
            f"`precision-time predictddl train {trained.dataset_type}`."
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
    error = float(model.scores[kind]["median_ape_percent"])
    notes = _beyond(fitted, model, x)
    known = int(trained.card.get("architectures", 0))
    if known < _FEW_ARCHITECTURES:
        few = (
            f"trained on {known} architectures only: the usual error is of the folds on which the regressor "
            "was chosen, new architectures may fare much worse"
        )
        notes = [[*said, few] for said in notes]
    return [
        _answer(item, match, float(step), predictor, error, said)
        for (item, match), step, said in zip(items, seconds, notes, strict=True)
    ]


def _answer(
    item: Resolved,
    match: TaskMatch,
    step_time_s: float,
    predictor: PredictorName,
    error: float,
    beyond: Iterable[str],
) -> Answer:
    request, steps = item.request, item.steps_per_epoch
    epochs = request.epochs or 1.0
    run_steps = request.steps or (None if steps is None else steps * epochs)
    notes = [*match.notes, *item.notes, *beyond]
    if predictor.variant == BLIND:
        notes.append(_BLIND_NOTE)
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
        expected_error_percent=error,
        unknown_ops=dict(embedding_of_graph(item.job.workload.graph).unknown),
        substitutions=tuple(notes),
    )


def _beyond(fitted: Regressor, model: TrainedVariant, x: Floats) -> list[list[str]]:
    """Per request, in words: inputs that training never saw the like of, and answers held back."""
    outside = fitted.inputs.outside(x)
    is_embedding = np.array([name.startswith("ghn") for name in model.names])
    target = fitted.raw_target(x)
    held = (target < fitted.low) | (target > fitted.high)
    said: list[list[str]] = []
    for row in range(len(x)):
        words = [model.names[place] for place in np.flatnonzero(outside[row] & ~is_embedding)]
        notes = [f"beyond what training saw: {', '.join(words)}"] if words else []
        parts = int((outside[row] & is_embedding).sum())
        if parts:
            notes.append(f"the architecture is unlike those of training in {parts} parts of its embedding")
        if held[row]:
            notes.append("the regressor left the range of measured times: its answer was held to the edge")
        said.append(notes)
    return said
