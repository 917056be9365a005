"""What the package knows by name, as lists that can be searched."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from enum import StrEnum
from typing import Any

from precision_time.cache import data
from precision_time.cost.constants import constants
from precision_time.cost.optimizer import known_optimizers
from precision_time.cost.stacks import known_stacks
from precision_time.errors import UnknownNameError
from precision_time.hardware.device_table import canonical_device, known_devices
from precision_time.hardware.nodes import known_node_types
from precision_time.hardware.prices.offer import Market
from precision_time.hardware.prices.offers import offers
from precision_time.precision.catalog import known_policies, known_variants
from precision_time.workload.families.tables import dataset_table
from precision_time.workload.resolve import known_models, search_models

Item = Mapping[str, Any]
_SEPARATORS = re.compile(r"[\s_\-./:]+")


class Catalog(StrEnum):
    """What can be listed."""

    MODELS = "models"
    DEVICES = "devices"
    NODE_TYPES = "node-types"
    PRECISIONS = "precisions"
    STACKS = "stacks"
    DATASETS = "datasets"
    OPTIMIZERS = "optimizers"
    PRICES = "prices"


def listed(catalog: Catalog, search: str = "", limit: int = 100) -> dict[str, Any]:
    """The entries of a catalog.

    Args:
        catalog: Which one.
        search: Words that an entry must have in its names, however separated; all entries where empty. Of
            models and devices the nearest ones where no name has them.
        limit: The most entries.

    Returns:
        `items`, the first ones, those whose name starts with the search before others, and `total`, how
        many there are.
    """
    found = _matching(catalog, search.strip()) if search.strip() else [item for _, item in _all(catalog)]
    start = _squashed(search.strip())
    found = sorted(found, key=lambda item: not _squashed(str(item.get("name", ""))).startswith(start))
    return {"items": found[:limit], "total": len(found)}


def _matching(catalog: Catalog, search: str) -> list[Item]:
    if catalog is Catalog.MODELS:
        return [asdict(info) for info in search_models(search)]
    words = [_squashed(word) for word in search.split()]
    found = [item for names, item in _all(catalog) if all(word in names for word in words)]
    if not found and catalog is Catalog.DEVICES:
        try:
            name = canonical_device(search)
        except UnknownNameError as error:
            return [item for _, item in _all(catalog) if item["name"] in error.nearest]
        return [item for _, item in _all(catalog) if item["name"] == name]
    return found


@data
def _all(catalog: Catalog) -> tuple[tuple[str, Item], ...]:
    """Every entry with the text that is searched; not to be changed."""
    return tuple(("|".join(map(_squashed, names)), item) for names, item in _SOURCES[catalog]())


def _squashed(text: str) -> str:
    return _SEPARATORS.sub("", text.lower())


def _models() -> Iterator[tuple[Iterable[str], Item]]:
    for info in known_models():
        yield (info.name, *info.aliases), asdict(info)


def _devices() -> Iterator[tuple[Iterable[str], Item]]:
    for device in known_devices():
        yield (device.vendor, device.name, device.arch), asdict(device)


def _node_types() -> Iterator[tuple[Iterable[str], Item]]:
    for node in known_node_types():
        yield (node.name, node.device), asdict(node)


def _precisions() -> Iterator[tuple[Iterable[str], Item]]:
    for policy in known_policies():
        variants = list(known_variants(policy.name))
        yield (policy.name, policy.summary), {**asdict(policy), "variants": variants}


def _stacks() -> Iterator[tuple[Iterable[str], Item]]:
    for name, profile in known_stacks().items():
        yield (name, profile["summary"]), profile


def _datasets() -> Iterator[tuple[Iterable[str], Item]]:
    spellings: dict[str, list[str]] = {}
    for spelling, dataset in dataset_table().items():
        spellings.setdefault(dataset.name, []).append(spelling)
    for dataset in {entry.name: entry for entry in dataset_table().values()}.values():
        yield (dataset.name, *spellings[dataset.name]), asdict(dataset)


def _optimizers() -> Iterator[tuple[Iterable[str], Item]]:
    table = constants("optimizers")
    for name in known_optimizers():
        aliases = [alias for alias, meant in table["aliases"].items() if meant == name]
        item = {"name": name, "aliases": aliases, "states": table[name]["states"]}
        yield (name, *aliases), item


def _prices() -> Iterator[tuple[Iterable[str], Item]]:
    """Offers, the cheapest hour of a device first; those without a price on demand last."""

    def per_device(item: Item) -> float:
        return float(item["usd_per_device_hour"] or 1e9)

    found = []
    for offer in offers(without_host=True):
        price = offer.price(Market.ON_DEMAND)
        hour = None if price is None else price / offer.devices_per_instance
        found.append({**asdict(offer), "usd_per_device_hour": hour})
    for item in sorted(found, key=per_device):
        yield (item["device"], item["cloud"], item["region"], item["instance_type"]), item


_SOURCES: Mapping[Catalog, Callable[[], Iterator[tuple[Iterable[str], Item]]]] = {
    Catalog.MODELS: _models,
    Catalog.DEVICES: _devices,
    Catalog.NODE_TYPES: _node_types,
    Catalog.PRECISIONS: _precisions,
    Catalog.STACKS: _stacks,
    Catalog.DATASETS: _datasets,
    Catalog.OPTIMIZERS: _optimizers,
    Catalog.PRICES: _prices,
}
