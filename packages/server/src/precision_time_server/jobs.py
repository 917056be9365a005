"""Jobs of calls: JSON objects of the fields of `Request`, without those that name files or code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from precision_time.cache import data
from precision_time.errors import ConfigError, shown
from precision_time.precision.catalog import is_policy_file
from precision_time.request.request import Request
from precision_time.request.schema import ALIASES, RequestFields

from .defaults import joined

if TYPE_CHECKING:
    from precision_time.workload.graph import OpGraph

    from .service import Service

REFUSED: Mapping[str, str] = {
    "calibration": "send measured steps to a cluster (POST /v1/clusters/NAME/measurements), or anchors",
    "custom": "store a cluster with its hardware (PUT /v1/clusters/NAME), and name it as cluster",
    "predictor": "the operator chooses the predictor of the service",
    "trust": "capture the model where it is, and upload its graph (Client.upload_model)",
    "inputs": "capture the model where it is, and upload its graph (Client.upload_model)",
    "forward": "capture the model where it is, and upload its graph (Client.upload_model)",
    "loss": "capture the model where it is, and upload its graph (Client.upload_model)",
    "example_inputs": "capture the model where it is, and upload its graph (Client.upload_model)",
}
"""Fields of a request that name files or code, and what stands in their place here."""
UPLOADS = "uploads/"
"""Before the names of uploaded models."""
_LONGEST_TEXT, _MOST_FIELDS = 10_000, 500
_MODELS = ("model", "reference", "teacher")


@data
def job_fields() -> frozenset[str]:
    """Fields that a job may have, by their own names."""
    return frozenset(name for name in RequestFields.model_fields) - REFUSED.keys()


def checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by their own names, none of which names a file or code.

    Raises:
        ConfigError: If one does, or is given twice in different words.
    """
    found: dict[str, Any] = {}
    _check_size("The job", fields)
    for name, value in fields.items():
        _check_size(name, value)
        own = ALIASES.get(name, name)
        if own in REFUSED and value is not None:
            raise ConfigError(
                f"{name}={shown(value)} is not taken by the service. The rule: a request names no files and "
                f"no code. To fix: leave it out; {REFUSED[own]}."
            )
        if own in found and value is not None and found[own] is not None:
            raise ConfigError(f"{own} is given twice, once as {name}. To fix: give one of them.")
        found[own] = value
    for name in _MODELS:
        _check_model(name, found.get(name))
    _check_precision(found.get("precision"))
    for anchor in _anchors(found.get("anchors")):
        checked(anchor)
    return found


def _check_size(name: str, value: Any) -> None:
    """Refuse what takes long to be found wrong.

    Raises:
        ConfigError: If a text is longer, or an object has more fields, than any job says.
    """
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, str) and len(each) > _LONGEST_TEXT:
            raise ConfigError(
                f"{name}={shown(each)} is too long. The rule: at most {_LONGEST_TEXT:,} characters. To fix: "
                "shorten it."
            )
        if isinstance(each, Mapping) and len(each) > _MOST_FIELDS:
            raise ConfigError(
                f"{name} has {len(each):,} fields. The rule: at most {_MOST_FIELDS}. To fix: leave out what "
                "is none of a job."
            )


def _anchors(given: Any) -> list[Mapping[str, Any]]:
    """Anchors as objects: in a text, which the command line takes, a file could be named.

    Raises:
        ConfigError: If they are something else.
    """
    found = [] if given is None else given if isinstance(given, list) else [given]
    for each in found:
        if not isinstance(each, Mapping):
            raise ConfigError(
                f"anchors holds {shown(each)}. The rule: objects of fields. To fix: send "
                '[{"batch_size": 64, "gpus": 8, "step_time_s": 0.21}].'
            )
    return found


def _check_model(name: str, value: Any) -> None:
    if value is not None and not isinstance(value, str | Mapping):
        raise ConfigError(
            f"{name}={shown(value)} is no model. The rule: a known name, a Hugging Face configuration as an "
            "object, or the name of an uploaded model. To fix: send one of these."
        )


def _check_precision(value: Any) -> None:
    for each in value if isinstance(value, list) else [value]:
        # Where several values are taken, a comma parts them.
        if isinstance(each, str) and any(map(is_policy_file, each.split(","))):
            raise ConfigError(
                f"precision={shown(each)} is a file. The rule: a request names no files. To fix: send the "
                "policy itself, as an object."
            )


async def request_of(fields: Mapping[str, Any], service: Service) -> Request:
    """The request that a job of a call asks.

    Args:
        fields: Of the job, as JSON.
        service: Has the clusters and models that may be named.

    Raises:
        ConfigError: If a field is unknown, refused or breaks its rule.
        NotFoundError: If it names a stored cluster or model that is not there.
    """
    return Request.of(await resolved(fields, service))


async def resolved(fields: Mapping[str, Any], service: Service) -> dict[str, Any]:
    """The fields with what they name in the store: defaults of a cluster beneath them, graphs of models."""
    found = checked(fields)
    cluster = found.pop("cluster", None)
    if cluster is not None:
        found = joined(await service.cluster_fields(cluster), found)
    return await with_graphs(found, service, {})


async def with_graphs(
    fields: Mapping[str, Any], service: Service, graphs: dict[str, OpGraph]
) -> dict[str, Any]:
    """The fields with the graphs of uploaded models in the place of their names.

    Args:
        fields: Of a job, checked.
        service: Has the models.
        graphs: Those that were read already; others are added.
    """
    found = dict(fields)
    for name in _MODELS:
        value = found.get(name)
        if isinstance(value, str) and value.startswith(UPLOADS):
            if value not in graphs:
                graphs[value] = await service.uploaded_graph(value)
            found[name] = graphs[value]
    return found
