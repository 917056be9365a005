"""Devices of several kinds in one job (`4xH100+4xA100`): data parallelism at the pace of the slowest."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any, ClassVar

from ..errors import ConfigError, UnknownNameError
from ..hardware.device_table import canonical_device
from ..hardware.prices.offer import Market
from ..hardware.prices.offers import cheapest_offer
from ..hardware.words import with_cluster_words
from ..predict.api import predict
from ..predict.prediction import Prediction
from ..records import dataclass
from ..render.blocks import GAP, TEXT_WIDTH, Block, Text
from ..render.result import Result
from ..render.table import Table
from ..request.request import Request
from ..units import format_duration, grouped

_SPLIT = (
    "tp",
    "pp",
    "cp",
    "ep",
    "etp",
    "vpp",
    "zero_stage",
    "dp_shard",
    "num_microbatches",
    "cluster",
    "custom",
)
"""Fields that split a model, or say a cluster: not of devices that differ."""
_HOUR = 3600.0
_NETWORK_TERMS = ("exposed_s", "contention_s")
ASSUMED = (
    "Plain data parallelism, every kind on hosts of its own: a step is the longest computation and the "
    "longest exchange of gradients, each as predicted of as many devices and hosts of that kind alone.",
    "The exchange crosses the network between hosts; its kind is the slower of the hosts' usual ones.",
    "Nothing mixed was measured: the intervals of the parts do not hold for the whole.",
)
UNEVEN = (
    "Uneven batches need a sampler that gives each kind its batch and gradients weighted by samples: "
    "DistributedDataParallel alone takes the mean over ranks, whatever they hold."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """The devices of one kind."""

    device: str
    gpus: int
    batch_size: int
    """Samples per device and step."""
    compute_s: float
    """Of a step, without what waits for the network."""
    fits: bool
    idle_share: float
    """Of the step: waiting for the slowest."""
    usd_per_hour: float | None
    """Of the cheapest known offer on demand, whole instances; None where no price is known."""
    price: str
    uneven_batch_size: int
    """Its share where all compute equally long."""
    uneven_fits: bool
    alone_throughput: float
    """Of these devices without the others, at the same batch per device."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Mixed(Result):
    """What devices of several kinds do in one job of data parallelism."""

    model: str
    precision: str
    parts: tuple[Part, ...]
    step_time_s: float
    """With equal batches."""
    network_s: float
    """The part of the step that waits for the exchange."""
    throughput: float
    throughput_unit: str
    uneven_step_time_s: float
    """With batches such that all compute equally long."""
    uneven_throughput: float
    usd_per_hour: float | None
    """Of all parts; None where a price of one is not known."""
    run_s: float | None
    """With equal batches; None where the length of the run is not known."""
    uneven_run_s: float | None
    assumptions: tuple[str, ...]
    DERIVED: ClassVar[tuple[str, ...]] = ("fits",)

    @property
    def fits(self) -> bool:
        """Whether the equal batch fits in the memory of every kind."""
        return all(part.fits for part in self.parts)

    def in_one_line(self) -> str:
        """Time, throughput and what the faster ones lose."""
        fastest = max(self.parts, key=lambda part: part.idle_share)
        start = "" if self.fits else "Does not fit in memory; if it did: "
        return (
            f"{start}A step takes {format_duration(self.step_time_s)}: {grouped(self.throughput)} "
            f"{self.throughput_unit}; {fastest.device} waits {fastest.idle_share:.0%} of it. With uneven "
            f"batches {format_duration(self.uneven_step_time_s)}: {grouped(self.uneven_throughput)} "
            f"{self.throughput_unit}.{self._run}"
        )

    def blocks(self, *, width: int = TEXT_WIDTH, why: bool = False) -> Iterator[Block]:  # noqa: ARG002
        """The page: the kinds side by side, the other ways to use them, and what was assumed."""
        kinds = " + ".join(f"{part.gpus} x {part.device}" for part in self.parts)
        yield Text(self.in_one_line())
        yield Text(f"{self.model} on {kinds}, {self.precision}, data parallelism")
        yield GAP
        yield Table(
            columns=(
                "devices",
                ">batch each",
                ">computes",
                ">waits",
                ">USD an hour",
                ">uneven batch",
                "fits",
            ),
            rows=tuple(
                (
                    f"{part.gpus} x {part.device}",
                    part.batch_size,
                    format_duration(part.compute_s),
                    f"{part.idle_share:.0%}",
                    "-" if part.usd_per_hour is None else f"{part.usd_per_hour:.2f}",
                    part.uneven_batch_size,
                    f"{_yes(part.fits)}, uneven {_yes(part.uneven_fits)}",
                )
                for part in self.parts
            ),
        )
        yield GAP
        ways = [
            ("equal batches", self.throughput, self.usd_per_hour),
            ("uneven batches", self.uneven_throughput, self.usd_per_hour),
            *(
                (f"{part.gpus} x {part.device} alone", part.alone_throughput, part.usd_per_hour)
                for part in self.parts
            ),
        ]
        yield Table(
            columns=("way", f">{self.throughput_unit}", ">USD an hour", f">USD per 1e9 {self._unit}"),
            rows=tuple(
                (
                    way,
                    grouped(rate),
                    *(("-", "-") if usd is None else (f"{usd:.2f}", f"{usd / _HOUR / rate * 1e9:.3g}")),
                )
                for way, rate, usd in ways
            ),
        )
        yield GAP
        for line in (*self.assumptions, *dict.fromkeys(part.price for part in self.parts if part.price)):
            yield Text(line)

    @property
    def _run(self) -> str:
        if self.run_s is None or self.uneven_run_s is None:
            return ""
        hourly = self.usd_per_hour
        runs = [
            format_duration(run) + ("" if hourly is None else f" and {grouped(hourly * run / _HOUR)} USD")
            for run in (self.run_s, self.uneven_run_s)
        ]
        return f" The run takes {runs[0]}, with uneven batches {runs[1]}."

    @property
    def _unit(self) -> str:
        return self.throughput_unit.removesuffix("/s")


def kinds_in(device: Any) -> tuple[tuple[str, int], ...]:
    """Devices and counts of words such as `4xH100+4xA100`; empty where they are not of several kinds.

    >>> kinds_in("4xH100 + 2x A100-40GB"), kinds_in("8xH100"), kinds_in("CPU-Xeon-Platinum-8480+")
    ((('H100-SXM5-80GB', 4), ('A100-SXM4-40GB', 2)), (), ())
    """
    words = device.split("+") if isinstance(device, str) else []
    if len(words) < 2 or device.lower().startswith("mixed:") or not all(map(str.strip, words)):
        return ()
    try:
        said = [with_cluster_words({"device": word.strip()}) for word in words]
        counts: dict[str, int] = {}
        for part in said:
            name = canonical_device(part["device"])
            counts[name] = counts.get(name, 0) + int(part.get("gpus", 1))
    except (KeyError, UnknownNameError):
        return ()
    return tuple(counts.items())


def predict_mixed(request: Request) -> Mixed:
    """A job on the devices that the request's `device` names with `+`.

    Raises:
        ConfigError: If it splits the model between devices, or says counts beside those of the words.

    Assumes: `ASSUMED`; the time of a batch is nearly proportional to it where batches are made uneven.
    """
    kinds = kinds_in(request.device)
    _check(request, kinds)
    total = sum(count for _, count in kinds)
    batch = _batch(request, kinds, total)
    jobs = [_part_of(request, name, kinds, batch) for name, _ in kinds]
    network = max(map(_network_s, jobs))
    computes = [job.step_time_s - _network_s(job) for job in jobs]
    step = max(computes) + network
    shares = _shares(batch * total, [count for _, count in kinds], computes)
    uneven = [_part_of(request, name, kinds, share) for (name, _), share in zip(kinds, shares, strict=True)]
    uneven_step = max(job.step_time_s - _network_s(job) for job in uneven) + network
    units = jobs[0].throughput * jobs[0].step_time_s / (jobs[0].global_batch_size or 1.0)
    samples = sum(count * share for (_, count), share in zip(kinds, shares, strict=True))
    prices = [_price(name, count) for name, count in kinds]
    known = [usd for usd, _ in prices if usd is not None]
    steps = jobs[0].total_steps
    run_units = None if steps is None else steps * units * (jobs[0].global_batch_size or 0.0)
    throughput, uneven_throughput = units * batch * total / step, units * samples / uneven_step
    return Mixed(
        model=jobs[0].model,
        precision=jobs[0].precision,
        parts=tuple(
            Part(
                device=name,
                gpus=count,
                batch_size=batch,
                compute_s=compute,
                fits=job.fits,
                idle_share=1.0 - (compute + network) / step,
                usd_per_hour=usd,
                price=price,
                uneven_batch_size=share,
                uneven_fits=even.fits,
                alone_throughput=_of(
                    request, device=name, gpus=count, batch_size=batch, global_batch_size=None
                ).throughput,
            )
            for (name, count), job, compute, (usd, price), share, even in zip(
                kinds, jobs, computes, prices, shares, uneven, strict=True
            )
        ),
        step_time_s=step,
        network_s=network,
        throughput=throughput,
        throughput_unit=jobs[0].throughput_unit,
        uneven_step_time_s=uneven_step,
        uneven_throughput=uneven_throughput,
        usd_per_hour=sum(known) if len(known) == len(kinds) else None,
        run_s=None if run_units is None else run_units / throughput,
        uneven_run_s=None if run_units is None else run_units / uneven_throughput,
        assumptions=(*ASSUMED, UNEVEN),
    )


def _check(request: Request, kinds: Sequence[tuple[str, int]]) -> None:
    named = {name for name in _SPLIT if getattr(request, name, None) not in (None, 0, 1)}
    if named:
        raise ConfigError(
            f"{', '.join(sorted(named))} with devices of several kinds ({request.device}) is not possible. "
            "The rule: they are priced in plain data parallelism alone; a model that is split between them "
            "needs parts that fit each kind. To fix: leave it out, or take one kind."
        )
    said = {name for name in ("gpus", "nodes", "node_type") if getattr(request, name) not in (None, 1)}
    if said:
        raise ConfigError(
            f"{', '.join(sorted(said))} beside {request.device} is not possible. The rule: the words have "
            "the counts, and every kind stands on hosts of its own. To fix: leave it out."
        )
    if len(kinds) < 2:
        raise ConfigError(
            f"device={request.device} names devices of one kind. The rule: 4xH100+4xA100, with a count and a "
            "device on both sides of +. To fix: name two kinds, or one with its count."
        )


def _of(request: Request, **changed: Any) -> Prediction:
    return predict(Request.of({**request.to_dict(), **changed}))


def _part_of(request: Request, name: str, kinds: Sequence[tuple[str, int]], batch: int | None) -> Prediction:
    """A job with as many devices and hosts, all of one kind: rounded up to equal hosts."""
    total, hosts = sum(count for _, count in kinds), len(kinds)
    gpus = hosts * ceil(total / hosts)
    return _of(request, device=name, gpus=gpus, nodes=hosts, batch_size=batch, global_batch_size=None)


def _batch(request: Request, kinds: Sequence[tuple[str, int]], total: int) -> int:
    """Samples per device: as stated, else what is usual for the kind that takes the fewest."""
    if request.batch_size is not None:
        return int(request.batch_size)
    if request.global_batch_size is not None:
        whole = int(request.global_batch_size)
        if whole % total:
            raise ConfigError(
                f"global_batch_size={whole} on {total} devices is not possible. The rule: equal batches. To "
                f"fix: a multiple of {total}, or batch_size."
            )
        return whole // total
    return min(int(_part_of(request, name, kinds, None).batch_size) for name, _ in kinds)


def _network_s(job: Prediction) -> float:
    return sum(seconds for name, seconds in job.terms.items() if name.endswith(_NETWORK_TERMS))


def _shares(samples: int, counts: Sequence[int], seconds: Sequence[float]) -> list[int]:
    """Whole samples per device of each kind, in the ratio of their speeds; at least one."""
    speeds = [1.0 / each for each in seconds]
    of_all = sum(count * speed for count, speed in zip(counts, speeds, strict=True))
    return [max(1, round(samples * speed / of_all)) for speed in speeds]


def _price(name: str, count: int) -> tuple[float | None, str]:
    """USD per hour of the cheapest known offer of a kind, and which that is."""
    offer = cheapest_offer(name, devices=count)
    if offer is None:
        return None, f"No price of {name} is known."
    instances, _, usd = offer.rented(Market.ON_DEMAND, count)
    return usd, (
        f"{name}: {usd:g} USD an hour, {instances:,} x {offer.instance_type} in {offer.cloud}:{offer.region} "
        f"({offer.dated(datetime.date.today())})."
    )


def _yes(fits: bool) -> str:
    return "yes" if fits else "no"
