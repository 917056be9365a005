"""Currencies: prices are in USD, and in another currency only at a rate that the user states."""

from __future__ import annotations

import math

from ...errors import CatalogError, UnknownNameError
from ...records import dataclass
from .accelerators import words


@dataclass(frozen=True, kw_only=True, slots=True)
class Currency:
    """A currency, and what one USD costs in it."""

    code: str = "USD"
    per_usd: float = 1.0


def parse_currency(text: str | None) -> Currency:
    """The currency of an option: "EUR=0.92" says that one USD is 0.92 EUR; None is USD.

    Raises:
        CatalogError: If there is no rate, or none above zero.
        UnknownNameError: If there is no such currency; offers the nearest.
    """
    if text is None:
        return Currency()
    code, equals, rate = (part.strip() for part in text.partition("="))
    codes = words()["currency"]["codes"]
    if code.upper() not in codes:
        raise UnknownNameError(
            kind="currency",
            name=code,
            known=codes,
            hint=f"Write it like EUR=0.92. Known: {', '.join(codes)}.",
        )
    if code.upper() == "USD" and not equals:
        return Currency()
    try:
        per_usd = float(rate)
    except ValueError:
        per_usd = math.nan
    if not 0.0 < per_usd < math.inf:
        raise CatalogError(
            f"No rate for {code.upper()} in {text!r}: prices are in USD, and no rate is built in. To fix: "
            f"state what one USD costs: --currency {code.upper()}=0.92."
        )
    if code.upper() == "USD" and per_usd != 1.0:
        raise CatalogError(f"{text!r}: one USD is one USD. To fix: leave the rate away.")
    return Currency(code=code.upper(), per_usd=per_usd)
