"""llm-analysis at its pinned commit: FLOPs and bytes over peaks times efficiencies that the user chooses."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from predictors.contract import PEERS, SIXTEEN, Answer, asking, lacking

NAME, VERSION, CHECKOUT = "llm-analysis", "d841e40aec8c84b9e76ba9cfbce67418adb172bd", "llm-analysis"
_GIVEN = {
    "gpu": "its file of the device; links of the row, of a device inside a node, of the whole node outside "
    "as its files have them, of a lone device in its node those of the network",
    "type": "w16a16e16",
    "zero": "the stage of the row; below 3 replicas as rdp_size, as its dp_size gathers weights",
    "recomputation": "full as FULL, selective as ATTN_COMPUTE",
    "other": "its defaults",
}
VARIANTS = {
    "llm-analysis, efficiency 0.5": {**_GIVEN, "flops_efficiency": 0.5, "hbm_memory_efficiency": 1.0},
    "llm-analysis, efficiency 1": {**_GIVEN, "flops_efficiency": 1.0, "hbm_memory_efficiency": 1.0},
}
NEEDS = ("intra_bytes_per_s", "inter_bytes_per_s", "devices_per_node", "tp", "pp", "dp", "recompute")
CANNOT = "models but decoders, adapters, fp8 and fp32, context parallelism, bubbles, intervals"
_GPUS = {
    "A100-SXM4-80GB": "a100-sxm-80gb", "A100-SXM4-40GB": "a100-sxm-40gb", "A100-PCIE-40GB": "a100-pcie-40gb",
    "A100-PCIE-80GB": "a100-pcie-80gb", "A800-SXM4-80GB": "a100-sxm-80gb", "H100-SXM5-80GB": "h100-sxm-80gb",
    "H100-PCIE-80GB": "h100-pcie-80gb", "V100-SXM2-16GB": "v100-sxm-16gb", "V100-SXM2-32GB": "v100-sxm-32gb",
    "V100-PCIE-16GB": "v100-pcie-16gb", "MI100": "mi100-32gb", "MI250X": "mi250x-128gb",
}  # fmt: skip


def _lacks(row: Mapping[str, Any]) -> str:
    return "has no context parallelism" if row["cp"] > 1 else lacking(row, _GPUS, SIXTEEN)


def _seconds(row: Mapping[str, Any], settings: Mapping[str, Any]) -> float:
    from llm_analysis import analysis, config  # type: ignore[import-not-found]

    tp, outside = int(row["tp"]), row["inter_bytes_per_s"] / 1e9
    sharded, replicas = (int(row["dp"]), 1) if row["zero_stage"] == 3 else (1, int(row["dp"]))
    model = config.ModelConfig(
        name="job", num_layers=int(row["layers"]), n_head=int(row["heads"]), hidden_dim=int(row["hidden"]),
        vocab_size=int(row["vocab"]), max_seq_len=int(row["seq_len"]),
        num_key_value_heads=int(row["kv_heads"]), mlp_gated_linear_units=bool(row["gated"]),
        ffn_embed_dim=int(row["expert_ffn"] or row["ffn"]), moe_num_experts=int(row["experts"] or 1),
        moe_top_k=int(row["top_k"] or 1),
    )  # fmt: skip
    gpu = replace(
        config.get_gpu_config_by_name(_GPUS[row["device"]]),
        intra_node_bandwidth_in_GB_per_sec=row["intra_bytes_per_s"] / 1e9 or outside,
        inter_node_bandwidth_in_GB_per_sec=outside * row["devices_per_node"],
    )
    layout = config.ParallelismConfig(
        tp_size=tp, pp_size=int(row["pp"]), dp_size=sharded, rdp_size=replicas, ep_size=int(row["ep"]),
        sp_size=tp if row["sequence_parallel"] else 1,
    )  # fmt: skip
    efficiencies = {name: settings[name] for name in ("flops_efficiency", "hbm_memory_efficiency")}
    types = config.get_dtype_config_by_name(settings["type"])
    levels = {"none": "NONE", "selective": "ATTN_COMPUTE", "full": "FULL"}
    said = analysis.LLMAnalysis(model, gpu, types, layout, **efficiencies).training(
        batch_size_per_gpu=int(row["micro_batch_size"]),
        gradient_accumulation_steps=int(row["num_microbatches"]),
        global_batch_size=int(row["global_batch_size"]),
        seq_len=int(row["seq_len"]),
        activation_recomputation=analysis.ActivationRecomputation[levels[row["recompute"]]],
        ds_zero=analysis.DSZeRO(int(row["zero_stage"])),
    )
    return float(said["latency_per_iter"])


def predict(rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> list[Answer]:
    """Its step time."""
    sys.path[:0] = [str(PEERS / CHECKOUT)]
    logging.disable(logging.CRITICAL)
    return asking(rows, _lacks, lambda row: _seconds(row, settings))
