"""What is stored of a named cluster: defaults of its jobs, measured steps to start from, its own hardware."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from precision_time.errors import ConfigError, PrecisionTimeError, shown
from precision_time.hardware.custom import load_custom
from precision_time.learn.artifact import chosen_predictor
from precision_time.learn.calibration.calibration import Calibration
from precision_time.predict.anchors import Anchor, anchor_of, points_of
from precision_time.request.request import Request
from precision_time.request.schema import ANCHOR_TIMES, MOST_ANCHORS

from .defaults import joined
from .jobs import checked

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NOT_DEFAULTS = ("model", "cluster", "anchors", "layout")
_TRIED = ("resnet50", "bert-base", "llama2-7b")
"""Defaults must suit one of them: some fields are of sequences, others of images."""
_LONGEST_NOTE = 2000


def check_name(name: Any) -> str:
    """The name of a cluster.

    Raises:
        ConfigError: If it cannot be one.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{shown(name)} is no name of a cluster. The rule: up to 64 letters, digits, points, hyphens and "
            "underscores, a letter or digit first. To fix: use one such as a100-pod."
        )
    return name


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterDocument:
    """A cluster as it is stored."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of its jobs, by their own names."""
    anchors: tuple[Mapping[str, Any], ...] = ()
    """Measured steps, each a job with its defaults and a time."""
    hardware: Mapping[str, Any] | None = None
    """Tables of a file of devices, links and node types."""
    note: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ClusterDocument:
        """The document that a caller sends, checked by asking for jobs with it.

        Raises:
            ConfigError: If a part of it is unknown, breaks its rule, or does not fit the others.
        """
        unknown = given.keys() - set(cls.__dataclass_fields__)
        stated = {"fields": {}, "anchors": [], "note": ""} | {
            name: value for name, value in given.items() if value is not None
        }
        fields, anchors, note = stated["fields"], stated["anchors"], stated["note"]
        hardware = stated.get("hardware")
        shapes = (
            (not unknown, f"the unknown key {shown(min(unknown, default=''))}"),
            (isinstance(fields, Mapping), f"fields={shown(fields)}"),
            (
                isinstance(anchors, list) and all(isinstance(each, Mapping) for each in anchors),
                f"anchors={shown(anchors)}",
            ),
            (hardware is None or isinstance(hardware, Mapping), f"hardware={shown(hardware)}"),
            (isinstance(note, str) and len(note) <= _LONGEST_NOTE, f"note={shown(note)}"),
        )
        for is_right, what in shapes:
            if not is_right:
                raise ConfigError(
                    f"The cluster has {what}. The rule: fields and hardware are objects, anchors a list of "
                    f"objects, note a text of at most {_LONGEST_NOTE} characters. To fix: send "
                    '{"fields": {"device": "H100-SXM5-80GB", "network": "400g-ib"}}.'
                )
        if len(anchors) > MOST_ANCHORS:
            raise ConfigError(
                f"{len(anchors)} anchors. The rule: at most {MOST_ANCHORS}. To fix: send them as "
                "measurements (POST /v1/clusters/NAME/measurements)."
            )
        own = {name: value for name, value in checked(fields).items() if value is not None}
        for name in _NOT_DEFAULTS:
            if name in own:
                raise ConfigError(
                    f"fields has {name}={shown(own[name])}. The rule: what every job says itself is no "
                    "default, and options of the layout stand beside the others. To fix: leave it out."
                )
        found = cls(fields=own, anchors=tuple(anchors), hardware=hardware or None, note=note)
        if found.hardware is not None:
            load_custom(found.hardware)
        found._try_defaults()
        found.points()
        return found

    @classmethod
    def stored(cls, document: Mapping[str, Any]) -> ClusterDocument:
        """What `to_dict` wrote."""
        return cls(**{**document, "anchors": tuple(document["anchors"])})

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "fields": dict(self.fields),
            "anchors": [dict(each) for each in self.anchors],
            "hardware": None if self.hardware is None else dict(self.hardware),
            "note": self.note,
        }

    def _try_defaults(self) -> None:
        refused: list[PrecisionTimeError] = []
        for model in _TRIED:
            try:
                self._request({"model": model}).resolve()
            except PrecisionTimeError as error:
                refused.append(error)
            else:
                return
        raise ConfigError(f"No job can be made with these fields: {refused[0]}") from refused[0]

    def points(self) -> Calibration | None:
        """The anchors as points of a calibration; None without any.

        Raises:
            ConfigError: If one is no job with a time, impossibly fast, or contradicts another one.
        """
        anchors = [self._anchor(index, given) for index, given in enumerate(self.anchors)]
        return points_of(anchors, chosen_predictor(None)) if anchors else None

    def _anchor(self, index: int, given: Mapping[str, Any]) -> Anchor:
        if "model" not in given:
            raise ConfigError(
                f"anchors, {index}: {shown(given)} names no model. The rule: an anchor of a cluster is a job "
                "of its own, as others take nothing of a job from it. To fix: add model, gpus, batch_size, "
                "precision."
            )
        try:
            # The field of a request knows how a time can be said.
            [stated] = Request.of({"model": "resnet50", "anchors": [dict(given)]}).anchors
            fields = checked({name: value for name, value in stated.items() if name not in ANCHOR_TIMES})
            return anchor_of(stated, self._request(fields).resolve())
        except PrecisionTimeError as error:
            raise ConfigError(f"anchors, {index}: {error}") from error

    def _request(self, fields: Mapping[str, Any]) -> Request:
        return Request.of({**joined(self.fields, fields), "custom": self.hardware})
