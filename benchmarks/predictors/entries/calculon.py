"""Calculon at its pinned commit, with its systems of A100 and H100 and the links of the row."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from predictors.contract import PEERS, SIXTEEN, Answer, asking, lacking

NAME, VERSION, CHECKOUT = "Calculon", "caa4b11f8fe1fee3ba57adaacb7590d7deabd053", "calculon"
_GIVEN = {
    "system": "its a100_80g.json for every A100 and A800, its h100_80g_nvl8.json for every H100",
    "links": "rates and devices of a node of the row, of a lone device the network's rate; the rest its own",
    "memory": "without limit: the run happened",
    "gated blocks": "its block of two products, half as wide again",
    "zero": "any stage and FSDP as sharded optimizer",
    "recomputation": "selective as attn_only",
    "other": "fused activation, no offloading, sequence parallelism as rs_ag that is gathered again",
}
VARIANTS = {
    "Calculon": {**_GIVEN, "data_par_overlap": False},
    "Calculon, gradients overlapped": {**_GIVEN, "data_par_overlap": True},
}
NEEDS = ("intra_bytes_per_s", "inter_bytes_per_s", "devices_per_node", "tp", "pp", "dp", "recompute")
FITTED_TO = ("megatron-lm",)
CANNOT = "models but dense decoders, logits, other devices, adapters, fp32, context parallelism, intervals"
_FILES = {"A100": "a100_80g", "A800": "a100_80g", "H100": "h100_80g_nvl8"}
_TYPES = {**dict.fromkeys(SIXTEEN, "float16"), "fp8-mixed": "float8"}


def _system(row: Mapping[str, Any]) -> dict[str, Any]:
    path = PEERS / CHECKOUT / "systems" / f"{_FILES[row['device'].split('-')[0]]}.json"
    found: dict[str, Any] = json.loads(path.read_text())
    found["mem1"]["GiB"] = 1e6
    inside, outside = found["networks"]
    outside["bandwidth"] = row["inter_bytes_per_s"] / 1e9
    inside["bandwidth"] = row["intra_bytes_per_s"] / 1e9 or outside["bandwidth"]
    inside |= {"size": int(row["devices_per_node"]), "must_be_filled": False}
    return found


def _execution(row: Mapping[str, Any], overlap: bool) -> dict[str, Any]:
    tp, pp, dp = (int(row[name]) for name in ("tp", "pp", "dp"))
    node, sequence = row["devices_per_node"], bool(row["sequence_parallel"]) and tp > 1
    recompute = {"selective": "attn_only"}.get(row["recompute"], row["recompute"])
    return {
        "num_procs": tp * pp * dp, "tensor_par": tp, "pipeline_par": pp, "data_par": dp,
        "tensor_par_net": int(tp > node), "data_par_net": int(tp * dp > node),
        "pipeline_par_net": int(tp * pp * dp > node), "batch_size": int(row["global_batch_size"]),
        "microbatch_size": int(row["micro_batch_size"]), "datatype": _TYPES[row["precision"]],
        "fused_activation": True, "attention_type": "multiquery" if row["kv_heads"] == 1 else "multihead",
        "activation_recompute": recompute, "pipeline_interleaving": int(row["vpp"]),
        "optimizer_sharding": row["zero_stage"] > 0 and dp > 1,
        "tensor_par_comm_type": "rs_ag" if sequence else "ar", "tensor_par_overlap": "none",
        "seq_par_ag_redo": sequence and recompute != "full", "data_par_overlap": overlap and dp > 1,
        "weight_offload": False, "activations_offload": False, "optimizer_offload": False, "training": True,
    }  # fmt: skip


def _lacks(row: Mapping[str, Any]) -> str:
    if row["experts"] or row["cp"] > 1:
        return "has no experts or context parallelism"
    types = _TYPES if row["device"].startswith("H100") else SIXTEEN
    return lacking(row, _FILES, types)


def _seconds(row: Mapping[str, Any], overlap: bool) -> float:
    from calculon.llm import Llm  # type: ignore[import-not-found]
    from calculon.system import System  # type: ignore[import-not-found]

    model = {
        "hidden": int(row["hidden"]), "seq_size": int(row["seq_len"]), "attn_heads": int(row["heads"]),
        "feedforward": int(row["ffn"] * (1.5 if row["gated"] else 1.0)),
        "attn_size": int(row["head_dim"]), "num_blocks": int(row["layers"]),
    }  # fmt: skip
    job, system = Llm(Llm.Application(model), logging.getLogger()), System(_system(row))
    job.compile(system, Llm.Execution.from_json(_execution(row, overlap)))
    job.run(system)
    return float(job.get_total_time())


def predict(rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> list[Answer]:
    """Its step time."""
    sys.path[:0] = [str(PEERS / CHECKOUT)]
    return asking(rows, _lacks, lambda row: _seconds(row, settings["data_par_overlap"]))
