"""Calls whose fields hold several values: one job for each combination, each as it would be asked alone."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from precision_time.errors import ConfigError, shown
from precision_time.request.request import Request
from precision_time.request.sweep import PHASES, RUN, axes_of
from precision_time.workload.resolve import is_known_model

from .defaults import joined
from .jobs import checked, with_graphs
from .problems import TooLargeError

if TYPE_CHECKING:
    from .service import Service

_CLUSTER, _MODEL = "cluster", "model"


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One combination."""

    fields: Mapping[str, Any]
    """As the call says them."""
    request: Request


async def combinations_of_call(fields: Mapping[str, Any], service: Service) -> list[Asked]:
    """One request for each combination of the values of a call, the last of the fields varying fastest.

    Args:
        fields: Of a job, those that hold a number, a name, a choice or a switch with several values: lists,
            texts such as "8,16,64", ranges such as "16..256".
        service: Has the clusters and models that may be named.

    Raises:
        TooLargeError: If there are more than one call may ask.
        ConfigError: If a field is unknown, refused, holds nothing or breaks its rule.
        NotFoundError: If a stored cluster or model is not there.
    """
    for name in (PHASES, RUN):
        if name in fields:
            raise ConfigError(
                f"{name} is of a whole run, and a sweep is of steps. To fix: leave it out, or POST /v1/runs."
            )
    for name, value in fields.items():
        if isinstance(value, list) and len(value) > service.settings.max_jobs:
            check_count({name: value}, service.settings.max_jobs)
    given = checked({name: value for name, value in fields.items() if name != _MODEL})
    models = _models(fields.get(_MODEL))
    cluster = given.pop(_CLUSTER, None)
    axes = axes_of({name: value for name, value in given.items() if value is not None})
    axes = {_MODEL: models, **axes} if models else axes
    check_count(axes, service.settings.max_jobs)
    beneath = {} if cluster is None else await service.cluster_fields(cluster)
    graphs: dict[str, Any] = {}
    found = []
    for chosen in product(*axes.values()):
        await asyncio.sleep(0)  # 1,000 jobs of 64 anchors are a quarter of a second: others come between
        one = dict(zip(axes, chosen, strict=True))
        asked = one if cluster is None else {**one, _CLUSTER: cluster}
        stated = await with_graphs(one, service, graphs)
        found.append(Asked(fields=asked, request=Request.of(joined(beneath, stated))))
    return found


def check_count(axes: Mapping[str, Sequence[Any]], most: int) -> None:
    """Refuse more combinations than one call may ask, before any is made.

    Raises:
        TooLargeError: With their number and the limit.
    """
    count = math.prod(map(len, axes.values()))
    if count > most:
        counted = " x ".join(f"{name} ({len(values)})" for name, values in axes.items() if len(values) > 1)
        raise TooLargeError(
            f"{counted} are {count:,} jobs. The rule: at most {most:,} of one call. To fix: name fewer "
            "values, ask in several calls, or let the operator raise the limit (--limit jobs=N)."
        )


def _models(given: Any) -> list[Any]:
    """Models in a list, or named in a text with commas."""
    if given is None:
        return []
    if isinstance(given, str) and "," in given and not is_known_model(given):
        given = [part.strip() for part in given.split(",") if part.strip()]
    models = given if isinstance(given, list) else [given]
    if not models:
        raise ConfigError(f"model={shown(given)} names nothing. To fix: name one, or several in a list.")
    for model in models:
        checked({_MODEL: model})
    return models
