"""Remarks on answers: which rows each is about, by arrays, and its text, written for rows that are shown.

Figures of what nobody runs like this, and their sources: `data/plausible.toml`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bools, Floats
from ..cost.constants import constants
from ..cost.input import feed_of, sample_kind
from ..cost.job import Job, of_groups
from ..cost.search import host_bytes
from ..cost.stacks import kind_of_stack
from ..cost.terms import DATA_STALL, HOST_STALL
from ..diagnostics import (
    LEFT_OPEN,
    TF32_BY_DEFAULT,
    UNMEASURED_DEVICE,
    UNMEASURED_PRECISION,
    Diagnostic,
    Diagnostics,
    Severity,
)
from ..hardware.device_table import catalog_name
from ..io import packaged_toml
from ..learn.novelty import new_kinds
from ..learn.priced import predict_step_times
from ..parallel.layout import Offload
from ..precision.catalog import get_policy
from ..precision.policy import DType
from ..records import dataclass
from ..request.batch import tokens_per_sample
from ..request.published import like_published, usual_global_batch
from ..request.question import family_of
from ..request.votes import counted_votes, practice_file
from ..units import format_bytes, format_duration, format_si
from ..workload.graph import OpClass
from .remedies import asked, memory_of_job, shortfall, tightness
from .scenarios import level_of

if TYPE_CHECKING:
    from .predictions import Predictions

_BOUND_SHARE = 0.15
"""Share of a step from which what the device waits for is named as the bound."""
_CONVOLUTIONS = {OpClass.CONV, OpClass.GROUPED_CONV, OpClass.DEPTHWISE_CONV}
_MOST = 0.5
"""Share of the FLOPs from which a model is mostly convolutions."""
_NEW_STEPS = 1.0
"""Distance to the measured runs from which an answer is an extrapolation, as in `learn.novelty.new_kinds`."""


@dataclass(frozen=True, slots=True)
class Remark:
    """One kind of remark."""

    code: str
    severity: Severity
    when: Callable[[Predictions], Bools]
    """The rows that it is about, shape (n,)."""
    text: Callable[[Predictions, int, Job], str]
    """What is said of one of them, given its job."""


def remarks_of(answers: Predictions, row: int, job: Job) -> tuple[Diagnostic, ...]:
    """All that is said of one row, its job's own remarks first."""
    basis, place = answers.basis(row)
    found = Diagnostics([*basis.said, *job.diagnostics])
    found.assume("calibration", *basis.calibrated.get(place, ()))
    for remark, rows in answers.remarked.items():
        if rows[row]:
            found.items.append(Diagnostic(remark.code, remark.severity, remark.text(answers, row, job)))
    return tuple(dict.fromkeys(found.items))


def warnings_of(answers: Predictions) -> NDArray[Any]:
    """The codes of what to act on at each row, separated by blanks; empty where there are none."""
    warned = [(remark.code, rows) for remark, rows in answers.remarked.items() if _warns(remark)]
    bits = np.zeros(len(answers.jobs), dtype=np.int64)
    for place, (_, rows) in enumerate(warned):
        bits |= rows.astype(np.int64) << place
    own = [
        [item.code for item in (*basis.said, *job.diagnostics) if _warns(item)]
        for basis, job in zip(answers.bases, answers.jobs.shared, strict=True)
    ]
    texts: dict[tuple[int, int], str] = {}
    for group, held in {*zip(answers.jobs.group.tolist(), bits.tolist(), strict=True)}:
        codes = [code for place, (code, _) in enumerate(warned) if held >> place & 1]
        texts[group, held] = " ".join(dict.fromkeys([*own[group], *codes]))
    keys = zip(answers.jobs.group.tolist(), bits.tolist(), strict=True)
    return np.array([texts[key] for key in keys], dtype=object)


def _warns(item: Remark | Diagnostic) -> bool:
    return item.severity is Severity.WARNING


def _where(condition: Callable[[Predictions, int, Job], bool]) -> Callable[[Predictions], Bools]:
    """Rows of the groups, by number and job, that a condition holds for."""

    def when(answers: Predictions) -> Bools:
        groups = [condition(answers, group, job) for group, job in enumerate(answers.jobs.shared)]
        return np.array(groups, dtype=bool)[answers.jobs.group]

    return when


def _run_is_known(answers: Predictions) -> Bools:
    return ~np.isnan(answers.figures["total_steps"])


def _run_text(answers: Predictions, row: int, _: Job) -> str:
    steps = int(answers.figures["total_steps"][row])
    many = "s" * (steps != 1)
    return f"The run is {steps:,} step{many}; evaluation, checkpoints and start-up are not included."


def _epoch_is_asked(answers: Predictions) -> Bools:
    named = _where(lambda answers, group, _: answers.lengths[group].dataset is not None)(answers)
    return named & _run_is_known(answers) & np.isnan(answers.figures["steps_per_epoch"])


def _run_is_asked(answers: Predictions) -> Bools:
    def asked(answers: Predictions, group: int, _: Job) -> bool:
        return answers.lengths[group].dataset is not None or answers.lengths[group].epochs is not None

    return _where(asked)(answers) & ~_run_is_known(answers)


def missing_length(answers: Predictions, row: int, job: Job) -> str:
    """Why a run has no time, and what to give."""
    length = answers.lengths[answers.jobs.group[row]]
    others = "steps=" if tokens_per_sample(job.workload) is None else "tokens= or steps="
    if length.dataset is not None:
        asked = f"How many samples per epoch? The dataset {length.dataset!r} is not known."
    elif length.epochs is not None:
        asked = "How many samples per epoch? Neither they nor a known dataset are given."
    else:
        return f"No time of the run: its length is not given. To fix: give {others}, or samples= per epoch."
    return f"No time of the run. {asked} To fix: give samples= per epoch, or instead of epochs {others}."


def _convolves_in_tf32(_: Predictions, __: int, job: Job) -> bool:
    """Whether a job in fp32 is mostly convolutions, on PyTorch and a chip whose TF32 is faster."""
    peaks, nodes = job.cluster.device.peak_flops_per_s, job.workload.graph.nodes
    if job.precision.name != "fp32" or job.stack.framework != "pytorch":
        return False
    convolved = sum(node.flops for node in nodes if node.op_class in _CONVOLUTIONS)
    mostly = convolved > _MOST * job.workload.graph.forward_flops
    return mostly and peaks.get("tf32", 0.0) > peaks.get("fp32", 0.0)


def _tf32_text(answers: Predictions, row: int, job: Job) -> str:
    said = "PyTorch computes fp32 convolutions in TF32 unless torch.backends.cudnn.allow_tf32 is off"
    other = (
        asked(answers.requests[answers.jobs.group[row]], {"precision": "tf32"}) if answers.requests else None
    )
    if other is None:
        return f"{said}: precision=tf32 answers for that."
    basis, _ = answers.basis(row)
    coverage = float(answers.figures["coverage"][row])
    as_is, in_tf32 = predict_step_times([job, other], basis.predictor, coverage=coverage).step_time_s
    return f"{said}: a step then takes {in_tf32 / as_is:.2f} x as long (precision=tf32)."


def _waits(term: str) -> Callable[[Predictions], Bools]:
    """Rows in which the device waits for something, in `term`, rather than the other way round."""
    return lambda answers: answers.figures[f"terms.{term}"] > _BOUND_SHARE * answers.figures["step_time_s"]


def _input_text(_: Predictions, row: int, job: Job) -> str:
    feed = feed_of(job.workload, job.cluster, job.stack)
    if feed.core_s == 0.0:
        return "Input-bound: the step waits for its input; a faster device will not help."
    return (
        f"Input-bound: {feed.loader} on {feed.cores:g} cores delivers about {feed.samples_per_s:,.0f} "
        f"{job.workload.sample_unit}s/s ({feed.kind}); a faster device will not help. To fix: more cores "
        "(cpus=, per host) or a loader that leaves less to them (loader=dali)."
    )


def _new_text(answers: Predictions, row: int, _: Job) -> str:
    basis, place = answers.basis(row)
    new = " and ".join(new_kinds(basis.times.distance[place], steps=_NEW_STEPS))
    return f"Outside the training data: the nearest measured run differs in its {new} (interval widened)."


def _device(job: Job) -> str:
    return catalog_name(job.cluster.device) or job.cluster.device.name


def _device_is_unmeasured(answers: Predictions, group: int, job: Job) -> bool:
    return _device(job) not in answers.bases[group].predictor.model_card["devices"]


def is_measured_in(family: str, narrow: DType) -> bool:
    """Whether a measured run of a family of models computes in a type of 8 or 4 bits.

    Args:
        family: `Workload.family`.
        narrow: `PrecisionPolicy.narrow`.
    """
    votes = (vote for _, vote in counted_votes({"precision": practice_file("counted")["precision"]}))
    said = {vote.fields["precision"] for vote in votes if family_of(family) in vote.classes.get("family", ())}
    return any(get_policy(name).narrow is narrow for name in said)


def _precision_is_unmeasured(_: Predictions, __: int, job: Job) -> bool:
    narrow = job.precision.narrow
    return narrow is not None and not is_measured_in(job.workload.family, narrow)


def _kind_is_unmeasured(answers: Predictions, group: int, job: Job) -> bool:
    return not answers.bases[group].predictor.has_seen(f"stack.{kind_of_stack(job.stack.profile)}")


def _kind_answers(answers: Predictions, group: int, job: Job) -> bool:
    stack = job.stack.profile
    own = stack != kind_of_stack(stack) and not answers.bases[group].predictor.has_seen(f"suite.{stack}")
    return own and not _kind_is_unmeasured(answers, group, job)


def _unpriced_text(_: Predictions, row: int, job: Job) -> str:
    counted = ", ".join(f"{name} x{count}" for name, count in sorted(job.workload.graph.unpriced.items()))
    return f"Operators without a cost formula, priced by memory traffic: {counted}."


def _figures() -> Mapping[str, Any]:
    """Read when the first job is answered, not when the package is imported."""
    return packaged_toml(__package__, "data/plausible.toml")


def _samples(answers: Predictions) -> Floats:
    """Rows of a step, which most figures count."""
    rows = of_groups(answers.jobs, lambda job: job.workload.rows_per_sample)
    return answers.figures["global_batch_size"] * rows


def _known_batch(job: Job) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = _figures()["batch"].get(job.workload.family)
    return found


def _units(job: Job, known: Mapping[str, Any]) -> int:
    return (job.workload.graph.seq_len or 1) if known["unit"] == "tokens" else 1


def _most_samples(job: Job) -> float:
    known = _known_batch(job)
    most = np.inf if known is None else known["most"] / _units(job, known)
    # A published run's batch, in whole samples of each device, is what is assumed of its like.
    alike = job.workload.graph.seq_len and like_published(job.workload, job.cluster.num_devices)
    return max(most, usual_global_batch(job.workload, job.cluster.num_devices)) if alike else most


def _node_bytes_per_s(answers: Predictions) -> Floats:
    def sample_bytes(job: Job) -> float:
        return float(_figures()["sample_bytes"].get(sample_kind(job.workload), 0.0)) / job.cluster.num_nodes

    return _samples(answers) / answers.figures["step_time_s"] * of_groups(answers.jobs, sample_bytes)


def _epoch_is_short(answers: Predictions) -> Bools:
    least_s = float(_figures()["epoch"]["least_s"])
    return answers.figures["epoch_time_s"] < least_s


def _epoch_text(answers: Predictions, row: int, _: Job) -> str:
    epoch = format_duration(float(answers.figures["epoch_time_s"][row]))
    return (
        f"An epoch takes {epoch}: start-up, evaluation and reading the data take longer. Fewer devices "
        "finish about as soon."
    )


def _batch_text(answers: Predictions, row: int, job: Job) -> str:
    known = _known_batch(job)
    assert known is not None
    return (
        f"{_samples(answers)[row] * _units(job, known):,.0f} {known['unit']} per step; no run of this kind "
        f"is known to have trained with more than {known['most']:,} ({known['source']}): larger batches "
        "hardly save steps."
    )


def _rate_text(answers: Predictions, row: int, _: Job) -> str:
    planned = _figures()["store"]["node_bytes_per_s"]
    return (
        f"The devices of a node take {format_si(_node_bytes_per_s(answers)[row], 'B/s')} of samples; large "
        f"stores are planned for {format_si(planned, 'B/s')} per node. Data on local disks or in memory is "
        "assumed."
    )


def _of_host() -> float:
    """Memory of a host per device, as the search of layouts has it."""
    return float(constants("optimizers")["offload"]["host_bytes"])


def _host_is_full(_: Predictions, __: int, job: Job) -> bool:
    return job.layout.offload is not Offload.NONE and host_bytes(job, job.layout) > _of_host()


def _host_text(_: Predictions, row: int, job: Job) -> str:
    return (
        f"offload={job.layout.offload} keeps {format_bytes(host_bytes(job, job.layout))} per device in host "
        f"memory; a host is taken to have {format_bytes(_of_host())} per device. To fix: hosts with more, or "
        "more devices with zero_stage=1 or higher, which share it."
    )


def _left_open_text(answers: Predictions, row: int, _: Job) -> str:
    basis, place = answers.basis(row)
    assert basis.scenarios is not None
    low_s, high_s, field = basis.scenarios.told(place, int(basis.groups[place]))
    said = f" To narrow it most: say {field}." if field else ""
    off = float(basis.scenarios.correction[place])
    percent = round(100.0 * (off - 1.0))
    taken = f" ({percent:+d} %, as measured runs asked like this took, included)" if percent else ""
    measured = packaged_toml(__package__, "data/questions.toml")[
        level_of(answers.requests[answers.jobs.group[row]])
    ]
    return (
        f"Left open and filled in as people do: {format_duration(off * low_s)} to "
        f"{format_duration(off * high_s)} per step{taken}; the answer lies just below the middle.{said} "
        "Measured runs asked with as much: "
        f"{measured['error_percent']:.0f} % off on average, {measured['coverage_percent']:.0f} of 100 inside "
        "the interval."
    )


def _memory_text(answers: Predictions, row: int, job: Job) -> str:
    return tightness(job, memory_of_job(job)) if answers.figures["fits"][row] else shortfall(job)


_INPUT_BOUND, _HOST_BOUND = _waits(DATA_STALL), _waits(HOST_STALL)
_ASSUMED, _WARNED = Severity.ASSUMPTION, Severity.WARNING

REMARKS = (
    Remark("run-time", _ASSUMED, _run_is_known, _run_text),
    Remark(
        "run-time",
        _WARNED,
        _epoch_is_asked,
        lambda answers, row, _: (
            f"No time of an epoch: the dataset {answers.lengths[answers.jobs.group[row]].dataset!r} is not "
            "known. To fix: give samples=."
        ),
    ),
    Remark("run-time", _WARNED, _run_is_asked, missing_length),
    Remark(
        "run-time",
        _ASSUMED,
        lambda answers: ~_run_is_known(answers) & ~_run_is_asked(answers),
        missing_length,
    ),
    Remark(LEFT_OPEN, _ASSUMED, lambda answers: answers.figures["own_share"] < 1.0, _left_open_text),
    Remark("input-bound", _WARNED, _INPUT_BOUND, _input_text),
    Remark(
        "host-bound",
        _WARNED,
        lambda answers: _HOST_BOUND(answers) & ~_INPUT_BOUND(answers),
        lambda *_: (
            "Host-bound: starting the kernels takes longer than running them; a faster device will hardly "
            "help. To fix: a larger batch, or compiler=inductor or cudagraphs."
        ),
    ),
    Remark(
        "extrapolation",
        _WARNED,
        lambda answers: answers.figures["distance"] > _NEW_STEPS,
        _new_text,
    ),
    Remark(
        UNMEASURED_DEVICE,
        _WARNED,
        _where(_device_is_unmeasured),
        lambda _, row, job: f"No measured run on {_device(job)}: predicted from its data sheet alone.",
    ),
    Remark(
        UNMEASURED_PRECISION,
        _WARNED,
        _where(_precision_is_unmeasured),
        lambda _, row, job: (
            f"No measured run of such a model ({job.workload.family}) computes in {job.precision.narrow}: "
            "its gain is predicted from the peak of such units alone."
        ),
    ),
    Remark(TF32_BY_DEFAULT, _WARNED, _where(_convolves_in_tf32), _tf32_text),
    Remark(
        "unmeasured-stack",
        _WARNED,
        _where(_kind_is_unmeasured),
        lambda _, row, job: (
            f"No measured run on the stack {job.stack.profile}: predicted from its description alone."
        ),
    ),
    Remark(
        "unmeasured-stack",
        _ASSUMED,
        _where(_kind_answers),
        lambda _, row, job: (
            f"No measured run on the stack {job.stack.profile}: its kind, "
            f"{kind_of_stack(job.stack.profile)}, answers for it."
        ),
    ),
    Remark(
        "unpriced-operators",
        _WARNED,
        _where(lambda _, group, job: bool(job.workload.graph.unpriced)),
        _unpriced_text,
    ),
    Remark("short-epoch", _WARNED, _epoch_is_short, _epoch_text),
    Remark(
        "huge-batch",
        _WARNED,
        lambda answers: _samples(answers) > of_groups(answers.jobs, _most_samples),
        _batch_text,
    ),
    Remark(
        "data-rate",
        _WARNED,
        lambda answers: _node_bytes_per_s(answers) > _figures()["store"]["node_bytes_per_s"],
        _rate_text,
    ),
    Remark(
        "memory",
        _WARNED,
        lambda answers: (
            answers.figures["memory_bytes_per_device"]
            > of_groups(answers.jobs, lambda job: job.cluster.device.usable_bytes)
        ),
        _memory_text,
    ),
    Remark("host-memory", _WARNED, _where(_host_is_full), _host_text),
)
"""All remarks on answers, in the order in which they are said."""
