"""What there is to say of a job, in plain words and numbers, whatever the launcher.

Tables of launchers (`data/*.toml`) translate these facts; a fact that differs from its plain value and that
no row of a table says is refused, so that nothing of a layout is lost without a word.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..cost.job import Job
from ..errors import LayoutError
from ..hardware.nodes import get_node_type
from ..parallel.layout import Layout, Recompute
from ..parallel.shape import model_shape
from ..request.schema import LAYOUT, LAYOUT_OPTIONS

Facts = Mapping[str, Any]

_ROUNDING = 1e-6
PARTIAL = "partial"
"""Full recomputation of some layers."""
_SAID = LAYOUT.keys() & LAYOUT_OPTIONS - {"recompute_modules"}
"""Fields of a layout that are facts; what selective recomputation covers is the launcher's own choice."""


def _fields(layout: Layout) -> dict[str, Any]:
    """Fields of a layout in plain words and numbers."""
    held = {name: LAYOUT[name].held(getattr(layout, name)) for name in LAYOUT if name in _SAID}
    return {name: getattr(value, "value", value) for name, value in held.items()}


PLAIN: Facts = {
    **_fields(Layout()),
    "etp": 0,
    "recompute_layers": 0,
    "micro_batch": None,
    "precision": None,
}
"""What a launcher must say, refuse, or leave to the reader of a note; with the value that needs no word."""


def facts_of(job: Job, sizes: Any = None) -> dict[str, Any]:
    """All facts of a job.

    Args:
        job: With its layout.
        sizes: Configuration of the model, where it comes out of a table; its fields are facts by their names.

    Raises:
        LayoutError: If a micro batch is no whole number of samples.
    """
    layout, policy, cluster = job.layout, job.precision, job.cluster
    if layout.micro_batch_size != int(layout.micro_batch_size):
        raise LayoutError(
            f"micro_batch_size={layout.micro_batch_size:g} is a mean of several: no launcher takes it. "
            "To fix: a whole number of samples per device."
        )
    micro = int(layout.micro_batch_size)
    per_host = get_node_type(cluster.node_type).devices if cluster.node_type else 0
    per_host = min(per_host or cluster.num_devices, math.ceil(cluster.num_devices / cluster.num_nodes))
    of_model = {} if sizes is None else {item.name: getattr(sizes, item.name) for item in fields(sizes)}
    return {
        **of_model,
        **layout_facts(layout, model_shape(job.workload.graph).num_layers or 0),
        "model": job.workload.name,
        "devices": cluster.num_devices,
        "hosts": math.ceil(cluster.num_devices / per_host),
        "devices_per_host": per_host,
        "micro_batch": micro,
        "replica_batch": micro * layout.num_microbatches,
        "global_batch": micro * layout.num_microbatches * layout.dp,
        "seq_len": job.workload.graph.seq_len or 0,
        "precision": policy.name,
        "recipe": policy.fp8_recipe or "",
        "reduce": policy.reduce.value,
        "optimizer": job.workload.optimizer,
        "compiler": job.stack.compiler,
        "overlap_grad_reduce": job.stack.overlap_grad_reduce and layout.data_ranks > 1,
        "overlap_param_gather": job.stack.overlap_param_gather and layout.zero_stage > 0,
        "overlap_tensor": job.stack.overlap_tensor and layout.tp > 1,
        "sizes_known": sizes is not None,
    }


def layout_facts(layout: Layout, num_layers: int) -> dict[str, Any]:
    """Facts of a layout alone.

    Args:
        layout: Any.
        num_layers: Of the model, to count recomputed ones; 0 where it has none.
    """
    partly = layout.recompute is Recompute.FULL and layout.recompute_share < 1.0
    recomputed = layout.recompute_share * num_layers / (layout.pp * layout.vpp) if partly else 0.0
    whole = abs(recomputed - round(recomputed)) < _ROUNDING
    shard = layout.shard_ranks if layout.zero_stage == 3 else 1
    etp = layout.tensor_degree_of_experts
    return {
        **_fields(layout),
        "dp": layout.dp,
        "etp": 0 if etp == layout.tp else etp,
        "data_ranks": layout.data_ranks,
        # Ranks of a shard and copies of it; `shard_dp` without context ranks.
        "shard_ranks": shard,
        "copies": layout.data_ranks // shard,
        "shard_dp": max(shard // layout.cp, 1),
        "instances": layout.data_ranks // (layout.dp_shard or layout.data_ranks),
        "prefetch": layout.prefetch if layout.zero_stage == 3 else 1,
        "recompute": PARTIAL if partly else layout.recompute.value,
        "recompute_share": layout.recompute_share,
        "recompute_layers": round(recomputed) if whole else recomputed,
        "recompute_parts": not whole,
        "sequence_parallel": layout.sequence_parallel and layout.tp > 1,
        "cp_comm_type": layout.cp_comm_type.value if layout.cp > 1 else PLAIN["cp_comm_type"],
        "schedule": layout.schedule.value if layout.pp > 1 else PLAIN["schedule"],
        "layers_per_chunk": num_layers // (layout.pp * layout.vpp),
        "stage_chars": _stage_chars(layout.stage_layers),
    }


def _stage_chars(layers: tuple[int, ...]) -> str:
    """Uneven stages in Megatron's letters: embedding, transformer layers, loss; no text where they are even.

    >>> _stage_chars((3, 4, 3))
    'Et*3|t*4|t*3L'
    """
    stages = "|".join(f"t*{count}" for count in layers)
    return f"E{stages}L" if stages else ""


def fields_of_facts(found: Facts, num_layers: int = 0, gpus: int | None = None) -> dict[str, Any]:
    """The layout fields of a request that facts out of a configuration say; what it does not say is plain.

    Args:
        found: By name, as `facts_of` has them; some of them suffice.
        num_layers: Of the model, for recomputation counted in layers.
        gpus: Devices of the job, for what the configuration leaves to them.
    """
    said = {**{name: value for name, value in PLAIN.items() if value is not None}, **found}
    tp, pp, cp = said["tp"], said["pp"], said["cp"]
    if "local_batch" in found:
        said["replica_batch" if pp > 1 else "micro_batch"] = found["local_batch"]
    copies, dp = said.get("copies"), gpus // (tp * pp * cp) if gpus else said.get("dp")
    if dp and "num_microbatches" not in found and said.get("micro_batch"):
        shares = said["micro_batch"] * (dp if "global_batch" in found else 1)
        said["num_microbatches"] = said.get("global_batch", said.get("replica_batch", shares)) // shares
    if dp and "instances" in found and said["instances"] > 1:
        said["dp_shard"] = dp * cp // said["instances"]
    if copies and copies > 1 and said["zero_stage"] == 3:
        said["dp_shard"] = found.get("shard_ranks", said.get("shard_dp", 1) * cp)
    recompute, share = said["recompute"], 0.0
    if recompute == PARTIAL:
        recompute, share = "full", said["recompute_layers"] * pp * said["vpp"] / num_layers % 1.0
    if said.get("stage_chars"):
        said["stage_layers"] = ",".join(part.strip("Et*L") for part in said["stage_chars"].split("|"))
    left_open = {"zero_stage", "schedule"} - found.keys()
    fields = {name: said[name] for name in (LAYOUT.keys() & LAYOUT_OPTIONS & said.keys()) - left_open}
    fields |= {"etp": said["etp"] or None, "recompute": recompute, "recompute_layers": share}
    read = {name: LAYOUT[name].read(value) for name, value in fields.items() if value not in (None, "")}
    given: dict[str, Any] = {}
    for name, field in LAYOUT.items():
        usual = getattr(Layout(), name) if field.text else field.default
        if name in read and field.value(read[name]) != usual:
            given[name] = getattr(read[name], "value", read[name])
    return given
