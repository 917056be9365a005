"""What plans and searches for layouts take beside the fields of a job: types, rules and help."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from precision_time.errors import ConfigError, shown
from precision_time.hardware.device_table import canonical_device
from precision_time.planning.money.offer import Offer
from precision_time.request.fields import LEAST_VALUE, MAX_COUNT, MAX_VALUE, NUMBER, TOTAL
from precision_time.request.schema import request_fields
from precision_time.request.sweep import values_of
from precision_time.request.validation import Fields

from .validation import config_error

_STRICT = ConfigDict(frozen=True, extra="forbid")
_Names = Annotated[list[StrictStr], Field(min_length=1, max_length=300)] | StrictStr
_NUMBER = BeforeValidator(NUMBER.function)
_PositiveNumber = Annotated[
    float, BeforeValidator(TOTAL.function), Field(ge=LEAST_VALUE, le=MAX_VALUE, allow_inf_nan=False)
]
_OPERATOR = "how much of this machine a call gets is the operator's to say"
_PAGE = "the answer has all that a picture or a table is made of"
REFUSED_ARGUMENTS: Mapping[str, str] = {
    "workers": _OPERATOR,
    "ray": _OPERATOR,
    "progress": "a call is answered when it is done",
    "now": "a date is counted from the clock of the service",
    "out": _PAGE,
    "html": _PAGE,
    "plot": _PAGE,
    "timeline": "POST /v1/timelines draws a step",
    "trace": "POST /v1/timelines draws a step",
    "max_jobs": "the operator sets the limits",
    "max_layouts": "the operator sets the limits",
}
"""Arguments of the library that name files, addresses or processes, or have no meaning here, and why."""


class PriceRow(BaseModel):
    """A price of the caller's own: an hour of a whole instance [USD]."""

    model_config = _STRICT

    cloud: Annotated[StrictStr, Field(min_length=1, max_length=100)]
    instance_type: Annotated[StrictStr, Field(max_length=100)] = "own"
    region: Annotated[StrictStr, Field(min_length=1, max_length=100)] = "own"
    device: Annotated[StrictStr, Field(max_length=100)]
    devices_per_instance: Annotated[StrictInt, Field(ge=1, le=1024)] = 1
    usd_per_hour: _PositiveNumber | None = None
    spot_usd_per_hour: _PositiveNumber | None = None
    reserved_usd_per_hour: _PositiveNumber | None = None

    def offer(self) -> Offer:
        """The same as an offer.

        Raises:
            UnknownNameError: If there is no such device.
        """
        stated = self.model_dump() | {"device": canonical_device(self.device), "cloud": self.cloud.lower()}
        return Offer(**stated, date=date.today().isoformat(), source="the call")


class _Arguments(BaseModel):
    model_config = _STRICT

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Arguments from names and values; None stands for not given.

        Raises:
            ConfigError: If one is unknown or breaks its rule.
        """
        try:
            return cls.model_validate({name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            raise config_error(error, fields={*cls.model_fields, *PriceRow.model_fields}) from None


class PlanArguments(_Arguments):
    """What `plan` takes beside the fields of a job."""

    deadline: Annotated[
        StrictStr | Annotated[float, _NUMBER, Field(gt=0.0, le=MAX_VALUE, allow_inf_nan=False)] | None,
        Field(description="A duration (24h, 3d, seconds), or a date or time in UTC."),
    ] = None
    budget: Annotated[
        StrictStr | Annotated[float, _NUMBER, Field(gt=0.0, le=MAX_VALUE, allow_inf_nan=False)] | None,
        Field(description="Most money: 500, 2.5k, 450 EUR (with currency)."),
    ] = None
    currency: Annotated[
        StrictStr | None, Field(description="Of the budget, with what one US dollar costs: EUR=0.92.")
    ] = None
    carbon_kg: Annotated[_PositiveNumber | None, Field(description="Most kilograms of CO2.")] = None
    confidence: Annotated[
        float,
        _NUMBER,
        Field(gt=0.0, lt=1.0, description="Probability with which the deadline is to be met."),
    ] = 0.9
    devices: Annotated[_Names | None, Field(description="Types that compete; commonly rented ones.")] = None
    gpus: Annotated[
        StrictInt | StrictStr | Annotated[list[StrictInt], Field(min_length=1, max_length=1000)] | None,
        Field(description="Numbers of devices that compete; powers of two of whole hosts."),
    ] = None
    max_gpus: Annotated[
        Annotated[StrictInt, Field(ge=1, le=MAX_COUNT)] | None, Field(description="The most devices; 64.")
    ] = None
    clouds: Annotated[_Names | None, Field(description="Who may rent them; all.")] = None
    regions: Annotated[_Names | None, Field(description="Where they may stand; everywhere.")] = None
    market: Annotated[_Names | None, Field(description="on-demand, spot or reserved.")] = None
    prices: Annotated[
        Annotated[list[PriceRow], Field(min_length=1, max_length=1000)] | None,
        Field(description="Prices of your own in the place of those that ship."),
    ] = None
    any_network: Annotated[
        bool, Field(description="Join hosts whose network is not known; a slow one is assumed.")
    ] = False
    layouts: Annotated[
        int,
        _NUMBER,
        Field(ge=0, le=8, description="Search all layouts of so many combinations that may be the cheapest."),
    ] = 0

    def options(self) -> dict[str, Any]:
        """The arguments as `plan` takes them."""
        stated = {name: getattr(self, name) for name in self.model_fields_set}
        if isinstance(self.gpus, str):
            stated["gpus"] = _whole(values_of("gpus", dict(request_fields())["gpus"], self.gpus), self.gpus)
        if self.prices is not None:
            stated["prices"] = tuple(row.offer() for row in self.prices)
        return stated


class LayoutArguments(_Arguments):
    """What `find_layouts` takes beside the fields of a job."""

    fix: Annotated[
        Annotated[list[StrictStr], Field(max_length=50)] | StrictStr,
        Field(description='Fields of the layout that are given, as "tp=8" or "zero_stage=1,3".'),
    ] = []
    top: Annotated[int, _NUMBER, Field(ge=1, le=100, description="Layouts to return.")] = 10

    @property
    def fixed(self) -> tuple[str, ...]:
        """The pairs of `fix`."""
        return (self.fix,) if isinstance(self.fix, str) else tuple(self.fix)


def parted(
    fields: Mapping[str, Any],
    arguments: type[BaseModel] | type[Fields],
    refused: Mapping[str, str] = REFUSED_ARGUMENTS,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a call says of the arguments, and the rest, which is of the job.

    Raises:
        ConfigError: If it says something that the library takes and the service does not.
    """
    for name, reason in refused.items():
        if fields.get(name) is not None:
            raise ConfigError(
                f"{name}={shown(fields[name])} is not taken by the service: {reason}. To fix: leave it out."
            )
    rest = {name: value for name, value in fields.items() if name not in refused}
    own = {name: rest.pop(name) for name in arguments.model_fields if name in rest}
    return own, rest


def _whole(values: list[Any], given: str) -> list[int]:
    try:
        return [int(value) for value in values]
    except (TypeError, ValueError):
        raise ConfigError(
            f"gpus={shown(given)} are no numbers of devices. To fix: 8, 8,16 or 8..64."
        ) from None
