"""Terms of published models of training time, as features of a point.

- `ernest`: fixed share, work per worker, tree reduction, per-worker cost: t = a + b s/m + c log m + d m.
  Venkataraman et al., Ernest, NSDI 2016.
- `optimus`: the synchronous speed function without parameter servers: t = a M/w + b + c (w-1)/w + d w.
  Peng et al., Optimus, EuroSys 2018.
- `ddp`: a step with a fixed batch per worker: computation grows with the batch, communication with the ring's
  share of it, apart within a node and between nodes. Form of Qiao et al., Pollux, OSDI 2021, eq. 8-11.

The constant is the intercept of whoever fits them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...errors import ConfigError
from .features import Feature, feature

Roles = Mapping[str, str]


def _ernest(roles: Roles) -> tuple[Feature, ...]:
    workers, size = roles["workers"], roles["size"]
    return (
        feature(("inverse", workers), ("value", size)),
        feature(("log", workers)),
        feature(("value", workers)),
    )


def _optimus(roles: Roles) -> tuple[Feature, ...]:
    workers, size = roles["workers"], roles["size"]
    return (
        feature(("inverse", workers), ("value", size)),
        feature(("others", workers)),
        feature(("value", workers)),
    )


def _ddp(roles: Roles) -> tuple[Feature, ...]:
    workers, batch = roles["workers"], roles["batch"]
    nodes = roles.get("nodes")
    terms = [
        feature(("value", batch)),
        feature(("several", workers)),
        feature(("others", workers)),
        feature(("log", workers)),
        feature(("value", workers)),
        feature(("several", workers), ("value", batch)),
        feature(("log", workers), ("value", batch)),
    ]
    if nodes is not None:
        terms += [
            feature(("several", nodes)),
            feature(("others", nodes)),
            feature(("log", nodes)),
            feature(("several", nodes), ("value", nodes)),
            feature(("several", nodes), ("log", workers)),
            feature(("several", nodes), ("value", batch)),
            feature(("log", nodes), ("value", batch)),
            feature(("alone", nodes), ("others", workers)),
            feature(("alone", nodes), ("several", workers), ("value", batch)),
        ]
        terms.append(feature(("several", nodes), *_per_node(roles)))
    return tuple(terms)


def overlap_features(roles: Roles) -> tuple[Feature, ...]:
    """What the form `overlap` reads: batch, workers, nodes, most workers on a node; empty without roles.

    One node where nobody says how many; workers over nodes where no column has the most.
    """
    if "batch" not in roles or "workers" not in roles:
        return ()
    nodes = feature(("value", roles["nodes"])) if "nodes" in roles else Feature(())
    return (
        feature(("value", roles["batch"])),
        feature(("value", roles["workers"])),
        nodes,
        feature(*_per_node(roles)),
    )


def _per_node(roles: Roles) -> tuple[tuple[str, str], ...]:
    if "per_node" in roles:
        return (("value", roles["per_node"]),)
    workers = ("value", roles["workers"])
    return (("inverse", roles["nodes"]), workers) if "nodes" in roles else (workers,)


_NEEDS = {"ernest": ("workers", "size"), "optimus": ("workers", "size"), "ddp": ("workers", "batch")}
_TERMS: Mapping[str, Callable[[Roles], tuple[Feature, ...]]] = {
    "ernest": _ernest,
    "optimus": _optimus,
    "ddp": _ddp,
}
TERM_SETS = tuple(_TERMS)


def term_features(name: str, roles: Roles) -> tuple[Feature, ...]:
    """The terms of one of TERM_SETS.

    Args:
        name: Which.
        roles: Role (workers, nodes, per_node, size, batch) to the column that plays it.

    Raises:
        ConfigError: If a role is missing that the terms need.
    """
    missing = [role for role in _NEEDS[name] if role not in roles]
    if missing:
        raise ConfigError(
            f"The terms {name!r} need the roles {', '.join(_NEEDS[name])}; {missing[0]} is not given. "
            f"To fix: name the column, such as roles: {{{missing[0]}: COLUMN}}."
        )
    return _TERMS[name](roles)
