"""What a plan must keep: a deadline (duration or date), a budget in a stated currency, a limit of carbon."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, time
from typing import Any

from ...errors import ConfigError, shown
from ...hardware.prices.currency import Currency, parse_currency
from ...records import dataclass
from ...units import duration_s, format_duration

USD = "USD"
_MONEY = re.compile(
    r"(?P<before>[^\d\s.,+-]*)\s*(?P<amount>[+-]?[\d,_]*\.?\d+(?:e[+-]?\d+)?)\s*(?P<scale>[kM]?)\s*(?P<after>\S*)",
    re.IGNORECASE,
)
_SIGNS = {"$": USD, "US$": USD, "€": "EUR", "£": "GBP"}
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6}
_NUMBER = re.compile(r"[0-9.]+")
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}.*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a choice must keep to be feasible; None where there is no such limit."""

    deadline_s: float | None = None
    """From the start of the run."""
    until: str = ""
    """The date that was given, where one was."""
    budget_usd: float | None = None
    budget: str = ""
    """As it was given, where it is no plain number of US dollars."""
    carbon_g: float | None = None
    confidence: float = 0.9
    """Probability with which the deadline is to be met."""

    @property
    def words(self) -> list[str]:
        """Each limit, as people say it."""
        found = []
        if self.deadline_s is not None:
            by = f", until {self.until}" if self.until else ""
            found.append(
                f"within {format_duration(self.deadline_s)}{by} (probability {self.confidence:.0%} or more)"
            )
        if self.budget_usd is not None:
            given = f" ({self.budget})" if self.budget else ""
            found.append(f"for ${self.budget_usd:,.6g} or less{given}")
        if self.carbon_g is not None:
            found.append(f"with {self.carbon_g / 1e3:,.4g} kg of CO2 or less")
        return found


def limits_of(
    *,
    deadline: str | float | datetime | date | None = None,
    budget: str | float | None = None,
    currency: str | None = None,
    carbon_kg: float | None = None,
    confidence: float = 0.9,
    now: datetime | None = None,
) -> Limits:
    """The limits that a caller states; arguments as of `plan`.

    Raises:
        ConfigError: A value that breaks its rule: a past date, a budget of 0, a currency without a rate.
        UnknownNameError: A currency that is none.
    """
    if not 0.0 < confidence < 1.0:
        raise ConfigError(
            f"confidence={confidence:g} is no probability between 0 and 1. To fix: such as confidence=0.9."
        )
    seconds, until = (None, "") if deadline is None else _deadline(deadline, now)
    usd, said = (None, "") if budget is None else _budget(budget, parse_currency(currency))
    if budget is None and currency is not None:
        raise ConfigError("currency is given without a budget. To fix: give budget, or leave it out.")
    if carbon_kg is not None and not 0.0 < carbon_kg < math.inf:
        raise ConfigError(
            f"carbon_kg={carbon_kg:g} must be above 0: every run takes energy. To fix: such as carbon_kg=50."
        )
    return Limits(
        deadline_s=seconds,
        until=until,
        budget_usd=usd,
        budget=said,
        carbon_g=None if carbon_kg is None else 1e3 * carbon_kg,
        confidence=confidence,
    )


def _deadline(given: str | float | datetime | date, now: datetime | None) -> tuple[float, str]:
    """Seconds from now, and the date as it was understood; empty of a duration."""
    moment = _moment(given)
    if isinstance(given, str) and _NUMBER.fullmatch(given.strip()):
        number = given.strip()
        raise ConfigError(
            f"deadline {shown(given)} has no unit. The rule: a duration or a date. To fix: {number}h, "
            f"{number}d or {number}min."
        )
    if moment is None:
        return duration_s("deadline", given), ""  # type: ignore[arg-type]
    start = now or datetime.now(UTC)
    start = start if start.tzinfo else start.replace(tzinfo=UTC)
    said = moment.isoformat(sep=" ", timespec="minutes").replace("+00:00", " UTC")
    left_s = (moment - start).total_seconds()
    if left_s <= 0.0:
        raise ConfigError(
            f"deadline {shown(str(given))} is in the past: {said} was {format_duration(-left_s)} before the "
            "start. The rule: a date is the time at which the run must be done. To fix: a later date, or a "
            "duration such as 24h or 3d."
        )
    return left_s, said


def _moment(given: Any) -> datetime | None:
    """The time of a date, in UTC where it says no other zone; None of what is no date.

    Raises:
        ConfigError: If it looks like a date and is none (2026-02-30).
    """
    if isinstance(given, datetime):
        found = given
    elif isinstance(given, date):
        found = datetime.combine(given, time())
    elif isinstance(given, str) and _DATE.fullmatch(given.strip()):
        try:
            found = datetime.fromisoformat(given.strip())
        except ValueError:
            raise ConfigError(
                f"deadline {shown(given)} is no date of the calendar. To fix: write it like 2030-06-01 or "
                "2030-06-01T18:00."
            ) from None
    else:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _budget(given: str | float, currency: Currency) -> tuple[float, str]:
    """US dollars, and the budget as it was given in another currency."""
    found = _MONEY.fullmatch(str(given).strip())
    amount = float(found["amount"].replace(",", "").replace("_", "")) if found else math.nan
    if not found or not math.isfinite(amount):
        raise ConfigError(f"budget {shown(given)} is no amount. To fix: write it like 500, $2.5k or 450 EUR.")
    amount *= _SCALES[found["scale"].lower()]
    if amount <= 0.0:
        raise ConfigError(
            f"budget {shown(given)} must be above 0: no offer is free. To fix: such as budget=500, or leave "
            "it out to see what a run costs."
        )
    word = found["after"] or found["before"]
    code = parse_currency(f"{_SIGNS.get(word, word).upper()}=1").code if word else currency.code
    if code != currency.code:
        if currency.code != USD:
            raise ConfigError(
                f"budget {shown(given)} is in {code}, and currency in {currency.code}. To fix: name one "
                "currency."
            )
        parse_currency(code)  # says that there is no rate
    if code == USD:
        return amount, ""
    return amount / currency.per_usd, f"{amount:,.6g} {code} at {currency.per_usd:g} {code} for one USD"
