"""The `Layout` of a row: degrees from its parallelism column, batches made to agree with each other."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ..cost.stacks import StackProfile
from ..errors import ConfigError
from ..hardware.catalog import get_device
from ..parallel.layout import CpCommType, DataParallelEngine, Layout, Offload, PipelineSchedule, Recompute
from ..records import dataclass
from .rules import first_match
from .schema import Row

_TOLERANCE = 1e-3
_MAX_TENSOR_PARALLEL = 8
_TOKENS_PER_MICRO_BATCH = 8192
_BYTES_PER_PARAM = 18.0
"""bf16 parameter and gradient, fp32 master and two Adam moments, and a little for buffers."""
_REPLICA_BYTES_PER_DEVICE = 48e9
"""Parameters, gradients and optimizer state that a replica may hold on a device of 80 GB or less, where the
source states no degrees; activations take the rest."""
_REPLICA_SHARE = 0.6
"""The same as a share of the memory of larger devices."""
_PARAMS_IN_NAME = re.compile(r"(?:^|[-_])(\d+(?:\.\d+)?)([bt])(?:$|[-_])")
_STAGE = re.compile(r"zero_?(\d)")
_SHARD_SIZES = ("shard_size", "fsdp_degree", "sharding_degree", "fsdp_ici", "ici_fsdp_parallelism")
"""Names under which sources state how many data ranks hold one copy between them."""


@dataclass(slots=True)
class Batches:
    """What a row says of its batches, and what was found to be wrong with it."""

    micro: float | None
    accumulation: int | None
    total: float | None
    assumptions: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Degrees:
    """Stated degrees of parallelism; None where the source is silent."""

    dp: int | None
    tp: int | None
    pp: int | None
    cp: int | None
    ep: int

    @property
    def model_parallel(self) -> int:
        """Devices that share one replica, unstated degrees counted as 1."""
        return (self.tp or 1) * (self.pp or 1) * (self.cp or 1)

    @property
    def all_stated(self) -> bool:
        """Whether tp and pp are both known, so that no model parallelism is hidden."""
        return self.tp is not None and self.pp is not None


def infer_layout(
    row: Row,
    *,
    num_devices: int,
    seq_len: int | None,
    batches: Batches,
    profile: StackProfile,
    year: float,
) -> Layout | None:
    """The layout of a row, with `batches` completed in place; None if no batch can be derived.

    Args:
        row: The raw row.
        num_devices: All devices of the run.
        seq_len: Tokens per sample, for the default micro batch of large models.
        batches: As the row states them.
        profile: Stack profile: its sharding holds where the row does not say.
        year: Framework year.
    """
    parallelism = row.json_object("parallelism")
    alone = Degrees(1, 1, 1, 1, 1)
    degrees = alone if num_devices == 1 else _degrees(row, parallelism, num_devices, batches)
    dp = _data_parallel(row, degrees, num_devices, batches, profile)
    if dp is None:
        return None
    tp, pp, cp = _split_rest(row, degrees, num_devices // dp, batches, seq_len)
    _split_local_batch(row, batches, dp=dp, pp=pp)
    if not _complete_batches(batches, dp, seq_len, big=pp > 1):
        return None
    assert batches.micro is not None and batches.accumulation is not None
    schedule, chunks = _schedule(row, parallelism, pp)
    vpp = (_degree(parallelism, "virtual_pp") or chunks) if pp > 1 else 1
    etp = _degree(parallelism, "expert_tp") or _degree(parallelism, "etp")
    if etp is None and degrees.ep > dp * cp and _expert_parallel(degrees.ep, dp * cp * tp) == degrees.ep:
        etp = 1  # experts over the tensor ranks, too, have none inside them
    ep = _expert_parallel(degrees.ep, dp * cp * tp // (etp or tp))
    zero_stage = _zero_stage(parallelism, profile, row) if dp > 1 else 0
    recompute, share = _checkpointing(row, parallelism)
    return Layout(
        dp=dp,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        etp=etp,
        expert_nodes=ep if ep > 1 and first_match("dispatch", row) is not None else 0,
        cp_comm_type=CpCommType.ULYSSES if cp > 1 and _ulysses(parallelism) else CpCommType.RING,
        zero_stage=zero_stage,
        dp_shard=_shard_size(parallelism, num_devices, tp * pp, dp * cp) if zero_stage else 0,
        offload=_offload(parallelism),
        vpp=vpp,
        stage_layers=_stage_layers(parallelism, pp),
        schedule=PipelineSchedule.INTERLEAVED if vpp > 1 else schedule,
        sequence_parallel=tp > 1
        and profile.sequence_parallel_from is not None
        and year >= profile.sequence_parallel_from,
        micro_batch_size=batches.micro,
        num_microbatches=batches.accumulation,
        recompute=recompute,
        recompute_layers=share % 1.0,
        data_parallel_engine=_engine(row, dp),
    )


def _degree(parallelism: Mapping[str, Any], name: str) -> int | None:
    value = parallelism.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 1 or value != int(value):
        return None
    return int(value)


def _degrees(row: Row, parallelism: Mapping[str, Any], num_devices: int, batches: Batches) -> Degrees:
    dp, tp, pp, cp, ep = (_degree(parallelism, name) for name in ("dp", "tp", "pp", "cp", "ep"))
    cp = cp or _ulysses(parallelism)
    if tp is None and pp is None and (shared := _degree(parallelism, "model_parallel")):
        tp = math.gcd(shared, _MAX_TENSOR_PARALLEL)
        pp = shared // tp
        batches.assumptions.append(f"model parallelism {shared} read as tp {tp} x pp {pp}")
    if parallelism.get("pp") == "device_map":
        pp, dp = num_devices, 1
    if layered := _degree(parallelism, "device_map_layers"):
        pp, tp = layered, 1
    stated = Degrees(dp, tp, pp, cp, ep or 1)
    if num_devices % stated.model_parallel:
        batches.doubts.append(
            f"tp x pp x cp = {stated.model_parallel} does not divide the {num_devices} devices"
        )
        return Degrees(None, None, None, None, ep or 1)
    if dp is not None and dp * stated.model_parallel != num_devices:
        rest = num_devices / (dp * stated.model_parallel)
        if rest == int(rest) and (cp is None or tp is None) and _adapts(row):
            return stated
        # A factor that the row does not explain is replicas: what splits a model, its source names.
        shards = next((size for name in _SHARD_SIZES if (size := _degree(parallelism, name))), 1)
        explained = dp * stated.model_parallel * shards == num_devices
        dp = num_devices // stated.model_parallel
        if not explained:
            batches.doubts.append(f"stated degrees do not multiply to {num_devices} devices: dp {dp} used")
    return Degrees(dp, tp, pp, cp, ep or 1)


def _ulysses(parallelism: Mapping[str, Any]) -> int | None:
    """Devices that share a sequence by exchanging heads (Ulysses), as XTuner and ms-swift say it."""
    return _degree(parallelism, "sp_ulysses") or _degree(parallelism, "sp")


def _data_parallel(
    row: Row, degrees: Degrees, num_devices: int, batches: Batches, profile: StackProfile
) -> int | None:
    """Replicas: stated, or as many as the batch feeds and the model's own degrees allow."""
    most = num_devices // degrees.model_parallel
    per_step = None
    if batches.total is not None:
        per_step = batches.total / ((batches.accumulation or 1) * (batches.micro or 1.0))
    if degrees.dp is not None and (
        per_step is None or batches.micro is not None or per_step >= degrees.dp * (1 - _TOLERANCE)
    ):
        return degrees.dp
    if per_step is None:
        return most if batches.micro is not None else None
    if per_step < most * (1 - _TOLERANCE):
        dp = math.gcd(max(1, round(per_step)), most)
        batches.assumptions.append(
            f"{most} devices share {round(per_step)} samples per forward pass: data parallel {dp}"
        )
        return dp
    if degrees.all_stated or batches.micro is not None:
        return most
    if profile.zero_stage == 3:  # noqa: PLR2004
        return most  # parameters are sharded over the replicas: nothing else need split the model
    sharing = _devices_per_replica(row, most)
    if sharing > 1:
        batches.assumptions.append(
            f"degrees not stated: {sharing} devices share a replica, as the model needs that memory"
        )
    return most // sharing


def _devices_per_replica(row: Row, most: int) -> int:
    """Power of two of devices that hold one replica's parameters and optimizer state."""
    params = row.json_object("model_config").get("params") or _params_in_name(row.text("model"))
    if not params or _adapts(row):
        return 1
    sharing = 1
    allowed = _replica_bytes(row.text("device"))
    while sharing < most and most % (2 * sharing) == 0:
        # The optimizer state may be sharded over all devices; parameters and gradients may not.
        needed = params * (6.0 / sharing + (_BYTES_PER_PARAM - 6.0) / most)
        if needed <= allowed:
            break
        sharing *= 2
    return sharing


def _replica_bytes(device: str) -> float:
    """Bytes of parameters, gradients and optimizer state that one device may hold."""
    try:
        return max(_REPLICA_BYTES_PER_DEVICE, _REPLICA_SHARE * get_device(device).memory_bytes)
    except ConfigError:
        return _REPLICA_BYTES_PER_DEVICE


def _params_in_name(model: str) -> float | None:
    match = _PARAMS_IN_NAME.search(model.lower())
    return float(match[1]) * {"b": 1e9, "t": 1e12}[match[2]] if match else None


def _split_rest(
    row: Row, degrees: Degrees, sharing: int, batches: Batches, seq_len: int | None
) -> tuple[int, int, int]:
    """tp, pp and cp whose product is `sharing`: stated ones first, the rest where it is usual."""
    tp, pp, cp = degrees.tp or 1, degrees.pp or 1, degrees.cp or 1
    rest, remainder = divmod(sharing, tp * pp * cp)
    if remainder or rest == 1:
        return (tp, pp, cp) if not remainder else (sharing, 1, 1)
    if degrees.cp is None and _adapts(row) and (degrees.tp is not None or _holds_frozen_weights(row)):
        batches.assumptions.append(f"context parallel {rest} fills the devices")
        return tp, pp, cp * rest
    if degrees.tp is None:
        usual = first_match("tensor_parallel", row) or {"tp": _MAX_TENSOR_PARALLEL}
        share = math.gcd(rest, usual["tp"])
        tp, rest = tp * share, rest // share
        name, pp, cp = ("cp", pp, cp * rest) if _adapts(row) else ("pp", pp * rest, cp)
        batches.assumptions.append(f"degrees not stated: tp {tp}" + (f", {name} {rest}" if rest > 1 else ""))
        return tp, pp, cp
    batches.assumptions.append(f"the remaining factor {rest} of the devices read as context parallel")
    return tp, pp, cp * rest


def _adapts(row: Row) -> bool:
    """Whether only adapters of the model are trained."""
    return "lora" in row.text("model") + row.text("task")


def _holds_frozen_weights(row: Row) -> bool:
    """Whether one device holds all frozen weights in eight bits, so that nothing need be split but tokens."""
    params = _params_in_name(row.text("model"))
    if not params or not row.text("precision").startswith(("fp8", "nvfp4")):
        return False
    return params <= _replica_bytes(row.text("device"))


def _split_local_batch(row: Row, batches: Batches, *, dp: int, pp: int) -> None:
    """Micro batches of a pipeline whose source states the batch of a step and replica only.

    One micro batch would leave all stages but one idle at any time. Frameworks split the local batch into as
    many as there are stages unless told otherwise; the table `whole_batch` has those that do not.
    """
    if pp == 1 or batches.accumulation is not None or not batches.micro or batches.total is None:
        return
    local = batches.total / dp
    if local != batches.micro or local != int(local) or first_match("whole_batch", row):
        return
    pieces = math.gcd(int(local), pp)
    if pieces > 1:
        batches.accumulation, batches.micro = pieces, local / pieces
        batches.assumptions.append(f"micro batches not stated: {pieces} of {local / pieces:g}, one per stage")


def _complete_batches(batches: Batches, dp: int, seq_len: int | None, *, big: bool) -> bool:
    """Fill micro batch, accumulation and total from each other; False if too little is known."""
    if batches.total is None:
        if batches.micro is None:
            return False
        if batches.accumulation is None:
            batches.accumulation = 1
            batches.assumptions.append("accumulation not stated: 1")
        batches.total = batches.micro * batches.accumulation * dp
        return True
    per_replica = batches.total / dp
    if batches.accumulation is None:
        batches.accumulation = _accumulation(batches, per_replica, seq_len, big=big)
    product = (batches.micro or per_replica / batches.accumulation) * batches.accumulation
    if batches.micro is not None and abs(per_replica / product - 1) > _TOLERANCE:
        if per_replica < product and per_replica > product * (1 - 1 / batches.accumulation) - _TOLERANCE:
            batches.assumptions.append("the last micro batch of a step is smaller: their mean is used")
        elif "accum" not in " ".join(batches.doubts):
            batches.doubts.append(
                f"micro batch {batches.micro:g} x accumulation {batches.accumulation} x dp {dp} is not the "
                f"global batch {batches.total:g}"
            )
            batches.accumulation = max(1, round(per_replica / batches.micro))
    batches.micro = per_replica / batches.accumulation
    return True


def _accumulation(batches: Batches, per_replica: float, seq_len: int | None, *, big: bool) -> int:
    """Micro batches per step where the row does not say."""
    if batches.micro is not None:
        # A smaller last micro batch still counts as one.
        return max(1, math.ceil(per_replica / batches.micro - _TOLERANCE))
    limit = max(1.0, _TOKENS_PER_MICRO_BATCH / seq_len) if seq_len else math.inf
    if not seq_len or (per_replica <= limit and not big) or per_replica <= 1:
        return 1
    whole = round(per_replica)
    fitting = [size for size in range(1, int(min(limit, whole)) + 1) if whole % size == 0]
    micro = 1 if big else fitting[-1]
    if whole // micro > 1:
        batches.assumptions.append(f"micro batch not stated: {micro} with {whole // micro} per step")
    return whole // micro


def _expert_parallel(ep: int, available: int) -> int:
    return ep if ep <= available and available % ep == 0 else math.gcd(ep, available)


def _zero_stage(parallelism: Mapping[str, Any], profile: StackProfile, row: Row) -> int:
    """Sharding stage: FSDP FULL_SHARD = 3, SHARD_GRAD_OP = 2, DeepSpeed's own number."""
    sharding = parallelism.get("fsdp", parallelism.get("fsdp_policy"))
    if isinstance(sharding, str):
        return 2 if "grad" in sharding.lower() else 3
    if sharding:
        return 3
    stage = parallelism.get("zero")
    if isinstance(stage, int) and 0 <= stage <= 3:  # noqa: PLR2004
        return stage
    config = parallelism.get("deepspeed")
    if config:
        match = _STAGE.search(str(config))
        return int(match[1]) if match else 2
    return profile.zero_stage if sharding is None else min(profile.zero_stage, 1)


def _checkpointing(row: Row, parallelism: Mapping[str, Any]) -> tuple[Recompute, float]:
    """What is recomputed, and the share of the layers where only some are."""
    stated = str(parallelism.get("activation_checkpointing", "")).lower()
    if not stated:
        rule = first_match("checkpointing", row)
        return (Recompute(rule["checkpointing"]) if rule else Recompute.NONE), 1.0
    rule = first_match("checkpointing_word", row.with_cells(word=stated))
    if rule is None:
        return Recompute.NONE, 1.0
    return Recompute(rule["checkpointing"]), float(rule.get("share", 1.0))


def _shard_size(parallelism: Mapping[str, Any], num_devices: int, split: int, data_ranks: int) -> int:
    """Data ranks that hold one copy between them; 0 where all of them do.

    `split` devices hold one data rank. `slices` copies are on that many slices, `fsdp_ici` names the ranks.
    """
    stated = next((size for name in _SHARD_SIZES if (size := _degree(parallelism, name))), None)
    copies_in_slice = _degree(parallelism, "ici_data_parallelism") or 1
    slices = (_degree(parallelism, "slices") or 1) * copies_in_slice
    if copies_in_slice > 1:
        stated = None
    size = stated or (num_devices // slices // split if num_devices % (slices * split) == 0 else 0)
    return size if 0 < size < data_ranks and data_ranks % size == 0 else 0


def _schedule(row: Row, parallelism: Mapping[str, Any], pp: int) -> tuple[PipelineSchedule, int]:
    """The stated schedule, and its chunks per stage where the row does not count them."""
    word = str(parallelism.get("schedule", "")).lower()
    rule = first_match("schedule_word", row.with_cells(word=word)) if word and pp > 1 else None
    if rule is None:
        return PipelineSchedule.ONE_F_ONE_B, 1
    return PipelineSchedule(rule["schedule"]), int(rule.get("chunks", 1))


def _offload(parallelism: Mapping[str, Any]) -> Offload:
    stated = str(parallelism.get("offload", "")).lower()
    if (
        parallelism.get("offload_params")
        or parallelism.get("cpu_offload")
        or "param" in stated
        or stated == "cpu"
    ):
        return Offload.PARAMETERS
    return Offload.OPTIMIZER if parallelism.get("offload_optimizer") or "optim" in stated else Offload.NONE


def _stage_layers(parallelism: Mapping[str, Any], pp: int) -> tuple[int, ...]:
    stated = parallelism.get("stage_layers")
    return tuple(stated) if isinstance(stated, list) and len(stated) == pp else ()


def _engine(row: Row, dp: int) -> DataParallelEngine:
    rule = first_match("engine", row)
    engine: DataParallelEngine = "ddp" if dp == 1 or rule is None else rule["engine"]
    return engine
