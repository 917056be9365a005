"""What plans and searches for layouts take beside the fields of a job, declared as those are."""

# No annotation is text here: what is evaluated when the class is made need not be parsed again.
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any

from msgspec import Meta

from precision_time.errors import ConfigError, shown
from precision_time.fields import NUMBER, Count, Option, PositiveNumber, Read
from precision_time.hardware.device_table import canonical_device
from precision_time.hardware.prices.offer import Offer
from precision_time.request.schema import RequestFields
from precision_time.request.sweep import values_of
from precision_time.request.validation import Fields

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
_Word = Annotated[str, Meta(min_length=1, max_length=100)]
_Names = str | Annotated[list[str], Meta(min_length=1, max_length=300)]
_Devices = Annotated[int, NUMBER, Meta(ge=1, le=1024)]


class PriceRow(Fields):
    """A price of the caller's own: an hour of a whole instance [USD]."""

    cloud: _Word
    device: _Word
    instance_type: _Word = "own"
    region: _Word = "own"
    devices_per_instance: _Devices = 1
    usd_per_hour: PositiveNumber | None = None
    spot_usd_per_hour: PositiveNumber | None = None
    reserved_usd_per_hour: PositiveNumber | None = None

    def offer(self) -> Offer:
        """The same as an offer.

        Raises:
            UnknownNameError: If there is no such device.
        """
        stated = {name: getattr(self, name) for name in self.model_fields}
        stated |= {"device": canonical_device(self.device), "cloud": self.cloud.lower()}
        return Offer(**stated, date=date.today().isoformat(), source="the call")


def _offers(given: Any) -> tuple[Offer, ...]:
    if not isinstance(given, list) or not 1 <= len(given) <= 1000:
        raise ValueError("a list of 1 to 1,000 objects")
    return tuple(PriceRow.of(row).offer() for row in given)


def _counts(given: Any) -> list[int]:
    if isinstance(given, str):
        return _whole(values_of("gpus", RequestFields.model_fields["gpus"], given), given)
    found = given if isinstance(given, list) else [given]
    if not 1 <= len(found) <= 1000 or not all(type(each) is int for each in found):
        raise ValueError("a whole number, or a list of up to 1,000")
    return found


class PlanArguments(Fields):
    """What `plan` takes beside the fields of a job."""

    deadline: Annotated[
        float | str | None, Option(help="A duration (24h, 3d, seconds), or a date or time in UTC.")
    ] = None
    budget: Annotated[float | str | None, Option(help="Most money: 500, 2.5k, 450 EUR (with currency).")] = (
        None
    )
    currency: Annotated[
        str | None, Option(help="Of the budget, with what one US dollar costs: EUR=0.92.")
    ] = None
    carbon_kg: Annotated[PositiveNumber | None, Option(help="Most kilograms of CO2.")] = None
    confidence: Annotated[
        float, NUMBER, Meta(gt=0.0, lt=1.0), Option(help="Probability with which the deadline is to be met.")
    ] = 0.9
    devices: Annotated[_Names | None, Option(help="Types that compete; commonly rented ones.")] = None
    gpus: Annotated[
        int | list[int] | None,
        Read(_counts, checks=True),
        Option(help="Numbers of devices that compete; powers of two of whole hosts."),
    ] = None
    max_gpus: Annotated[Count | None, Option(help="The most devices; 64.")] = None
    clouds: Annotated[_Names | None, Option(help="Who may rent them; all.")] = None
    regions: Annotated[_Names | None, Option(help="Where they may stand; everywhere.")] = None
    market: Annotated[_Names | None, Option(help="on-demand, spot or reserved.")] = None
    prices: Annotated[
        list[dict[str, Any]] | None,
        Read(_offers, checks=True),
        Option(
            help="Prices of your own in the place of those that ship: " + ", ".join(PriceRow.model_fields)
        ),
    ] = None
    any_network: Annotated[
        bool, Option(help="Join hosts whose network is not known; a slow one is assumed.")
    ] = False
    layouts: Annotated[
        int,
        NUMBER,
        Meta(ge=0, le=8),
        Option(help="Search all layouts of so many combinations that may be the cheapest."),
    ] = 0


class LayoutArguments(Fields):
    """What `find_layouts` takes beside the fields of a job."""

    fix: Annotated[
        str | Annotated[list[str], Meta(max_length=50)],
        Option(help='Fields of the layout that are given, as "tp=8" or "zero_stage=1,3".'),
    ] = ""
    top: Annotated[int, NUMBER, Meta(ge=1, le=100), Option(help="Layouts to return.")] = 10

    @property
    def fixed(self) -> tuple[str, ...]:
        """The pairs of `fix`."""
        return tuple(filter(None, [self.fix])) if isinstance(self.fix, str) else tuple(self.fix)


def parted(
    fields: Mapping[str, Any],
    arguments: type[Fields],
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
