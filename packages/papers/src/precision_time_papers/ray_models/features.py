"""Features of a point as data: products of simple functions of its columns, and terms of published models.

A feature is a product of atoms, an atom one function of one column: batch / workers is
(("inverse", "workers"), ("value", "batch")). It reads one row and nothing else, so that no split can leak
through it, and a saved model states it in JSON. Products are made here, not by scikit-learn's
PolynomialFeatures: that one also makes c * (1 / c) and products of two words of one category, and the terms
of published models are products, too.

Terms (the constant is the intercept of the regressor that fits them):

- `ernest`: fixed share, work per worker, tree reduction, per-worker cost: t = a + b s/m + c log m + d m.
  Venkataraman et al., Ernest, NSDI 2016, equation 1.
- `optimus`: the synchronous speed function without parameter servers: t = a M/w + b + c (w-1)/w + d w.
  Peng et al., Optimus, EuroSys 2018, section 3.2.
- `work`: samples, shared by workers, by their CPUs and in batches: every combination of these.
- `ddp`: a step with a fixed batch per worker: computation grows with the batch, communication with the ring's
  share of it, apart within a node and between nodes. Form of Qiao et al., Pollux, OSDI 2021, eq. 8-11.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.errors import ConfigError, CorpusError

Floats = NDArray[np.float64]
Column = NDArray[Any]
"""Numbers or, for categories, texts; shape (n,)."""
Atom = tuple[str, str]
"""Function and column; the function `is WORD` compares a category with a word."""
Feature = tuple[Atom, ...]
Roles = Mapping[str, str]
"""Role (workers, cpus, nodes, per_node, size, batch) to the column that plays it."""

_FUNCTIONS: Mapping[str, Callable[[Floats], Floats]] = {
    "value": lambda x: x,
    "inverse": lambda x: 1.0 / x,
    "log": np.log,
    # Of a count of workers or nodes.
    "others": lambda x: (x - 1.0) / x,
    "alone": lambda x: (x <= 1.0).astype(np.float64),
    "several": lambda x: (x > 1.0).astype(np.float64),
}
_ABOVE_ZERO = {"log", "inverse", "others"}
_EQUALS = "is "


def feature_name(item: Feature) -> str:
    """As in reports.

    >>> feature_name((("inverse", "workers"), ("value", "batch"), ("is a100", "device")))
    'inverse_workers__batch__device_is_a100'
    """
    return "__".join(_atom_name(*atom) for atom in item)


def _atom_name(function: str, column: str) -> str:
    if function == "value":
        return column
    if function.startswith(_EQUALS):
        return f"{column}_is_{function.removeprefix(_EQUALS)}"
    return f"{function}_{column}"


def feature_table(
    features: Sequence[Feature], columns: Mapping[str, Column], lines: Sequence[int] | None = None
) -> Floats:
    """Values of features, shape (n, n_features).

    Args:
        features: What to compute.
        columns: Values by name, shape (n,) each.
        lines: How rows are named in messages; None counts from 1.

    Raises:
        ConfigError: If a column or function is unknown.
        CorpusError: If a function cannot take a value; names row and column.
    """
    rows = len(next(iter(columns.values()))) if columns else 0
    values: dict[Atom, Floats] = {}
    result = np.ones((rows, len(features)))
    for index, item in enumerate(features):
        for atom in item:
            if atom not in values:
                values[atom] = _evaluate(*atom, columns, lines)
            result[:, index] *= values[atom]
    return result


def _evaluate(function: str, name: str, columns: Mapping[str, Column], lines: Sequence[int] | None) -> Floats:
    if name not in columns:
        raise ConfigError(
            f"The column {name!r} is missing. To fix: give it, as all of {', '.join(sorted(columns))}."
        )
    if function.startswith(_EQUALS):
        matches: Floats = (columns[name] == function.removeprefix(_EQUALS)).astype(np.float64)
        return matches
    if function not in _FUNCTIONS:
        raise ConfigError(f"Unknown function {function!r}. To fix: use one of {', '.join(_FUNCTIONS)}.")
    numbers = columns[name].astype(np.float64)
    if function in _ABOVE_ZERO and (numbers <= 0.0).any():
        first = int(np.flatnonzero(numbers <= 0.0)[0])
        line = first + 1 if lines is None else lines[first]
        raise CorpusError(
            f"Row {line}: {name} = {numbers[first]:g}, but {function!r} takes values above 0. "
            f"To fix: remove {name} from {function!r}, or remove the row."
        )
    return _FUNCTIONS[function](numbers)


def engineered(
    columns: Sequence[str],
    categories: Mapping[str, Sequence[str]],
    *,
    inverse: Sequence[str] = (),
    log: Sequence[str] = (),
    degree: int = 1,
    interactions_only: bool = True,
) -> tuple[Feature, ...]:
    """The columns, one column per word of a category but the first, inverses, logarithms, and products.

    Args:
        columns: Numeric columns.
        categories: Category to its words.
        inverse: Columns whose inverse is added.
        log: Columns whose logarithm is added.
        degree: Largest number of atoms of a product; 1 for no products.
        interactions_only: No powers of an atom.

    No product holds c and 1/c of one column, nor two words of one category: the one is constant, the
    other always zero.

    Reference: aMLLibrary's order of preprocessing, inverse and logarithm before products.
    """
    atoms = [("value", name) for name in columns]
    atoms += [(_EQUALS + word, name) for name, words in categories.items() for word in words[1:]]
    atoms += [("inverse", name) for name in inverse]
    atoms += [("log", name) for name in log]
    combine = itertools.combinations if interactions_only else itertools.combinations_with_replacement
    products = [
        tuple(chosen)
        for size in range(2, degree + 1)
        for chosen in combine(sorted(atoms), size)
        if _is_informative(chosen)
    ]
    return (*((atom,) for atom in atoms), *products)


def _is_informative(chosen: Sequence[Atom]) -> bool:
    plain = {column for function, column in chosen if function == "value"}
    inverted = {column for function, column in chosen if function == "inverse"}
    words = [column for function, column in chosen if function.startswith(_EQUALS)]
    return not plain & inverted and len(words) == len(set(words))


def without_duplicates(features: Iterable[Feature]) -> tuple[Feature, ...]:
    """Each feature once, in the order of their first mention."""
    return tuple(dict.fromkeys(features))


def _ernest(roles: Roles) -> tuple[Feature, ...]:
    workers = roles["workers"]
    return (("inverse", workers), ("value", roles["size"])), (("log", workers),), (("value", workers),)


def _optimus(roles: Roles) -> tuple[Feature, ...]:
    workers = roles["workers"]
    return (("inverse", workers), ("value", roles["size"])), (("others", workers),), (("value", workers),)


def _ddp(roles: Roles) -> tuple[Feature, ...]:
    batch: Atom = ("value", roles["batch"])
    several, others, log, count = ((name, roles["workers"]) for name in ("several", "others", "log", "value"))
    terms: list[Feature] = [
        (batch,), (several,), (others,), (log,), (count,), (several, batch), (log, batch)
    ]  # fmt: skip
    if "nodes" in roles:
        between, apart, log_nodes, nodes, one_node = (
            (name, roles["nodes"]) for name in ("several", "others", "log", "value", "alone")
        )
        terms += [
            (between,), (apart,), (log_nodes,), (between, nodes), (between, log), (between, batch),
            (log_nodes, batch), (one_node, others), (one_node, several, batch),
            (between, *_per_node(roles)),
        ]  # fmt: skip
    return tuple(terms)


def named_features(features: Sequence[Feature], roles: Roles) -> Mapping[str, tuple[Feature, ...]]:
    """What the techniques that state their own terms read, by `inputs`; empty where a role is missing.

    `overlap`: see `overlap_features`. The others are terms and then columns that part the points into groups
    with coefficients of their own. `samples`: the samples; every other column. `work`: samples per worker
    (and per CPU of it); the columns without a part in it. `ernest`: the constant and Ernest's terms;
    likewise. A study of steps has no number of samples: there the batch of a worker is its work.
    """
    size = roles.get("size", roles.get("batch"))
    if size is None:
        return {"overlap": overlap_features(roles)}
    sharing = [roles[name] for name in ("workers", "cpus") if name in roles and "size" in roles]
    parted = {size, *(column for role, column in roles.items() if role != "batch")}
    single = [item for item in features if len(item) == 1 and _tells_apart(item[0][0])]
    workers = roles.get("workers")
    terms: tuple[Feature, ...] = ()
    if workers is not None:
        work: Feature = (("value", size), *((("inverse", workers),) if "size" in roles else ()))
        terms = ((), work, (("log", workers),), (("value", workers),))
    # Cores of a worker are another kind of machine to Ernest, which is fitted to each kind.
    machines = [item for item in single if item[0][1] not in parted - {roles.get("cpus")}]
    return {
        "overlap": overlap_features(roles),
        "samples": ((("value", size),), *(item for item in single if item[0][1] != size)),
        "work": (
            (("value", size), *(("inverse", column) for column in sharing)),
            *(item for item in single if item[0][1] not in parted),
        ),
        "ernest": (*terms, *machines) if terms else (),
    }


def _tells_apart(function: str) -> bool:
    return function == "value" or function.startswith(_EQUALS)


def _work(roles: Roles) -> tuple[Feature, ...]:
    size: Atom = ("value", roles["size"])
    shared = [("inverse", roles[name]) for name in ("workers", "cpus", "batch") if name in roles]
    parts = [part for count in range(len(shared) + 1) for part in itertools.combinations(shared, count)]
    return tuple((size, *part) for part in parts)


def overlap_features(roles: Roles) -> tuple[Feature, ...]:
    """What `OverlapRegressor` reads: batch, workers, nodes, most workers on a node; empty without roles.

    One node is assumed where no column has their number; workers over nodes where no column has the most.
    """
    if "batch" not in roles or "workers" not in roles:
        return ()
    nodes: Feature = (("value", roles["nodes"]),) if "nodes" in roles else ()
    return (("value", roles["batch"]),), (("value", roles["workers"]),), nodes, _per_node(roles)


def _per_node(roles: Roles) -> Feature:
    if "per_node" in roles:
        return (("value", roles["per_node"]),)
    workers = ("value", roles["workers"])
    return (("inverse", roles["nodes"]), workers) if "nodes" in roles else (workers,)


_TERMS: Mapping[str, tuple[tuple[str, ...], Callable[[Roles], tuple[Feature, ...]]]] = {
    "ernest": (("workers", "size"), _ernest),
    "optimus": (("workers", "size"), _optimus),
    "work": (("size",), _work),
    "ddp": (("workers", "batch"), _ddp),
}


def term_features(name: str, roles: Roles) -> tuple[Feature, ...]:
    """The terms of a published model, ernest, optimus or ddp, or of shared work.

    Raises:
        ConfigError: If a role is missing that the terms need.
    """
    needed, terms = _TERMS[name]
    missing = [role for role in needed if role not in roles]
    if missing:
        raise ConfigError(
            f"The terms {name!r} need the roles {', '.join(needed)}; {missing[0]} is not given. "
            f"To fix: name the column, such as roles: {{{missing[0]}: COLUMN}}."
        )
    return terms(roles)
