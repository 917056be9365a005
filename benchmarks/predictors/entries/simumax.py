"""SimuMax at its pinned commit, with its kernel files of A100 and B200 and the links of the row."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from predictors.contract import PEERS, SIXTEEN, Answer, asking, lacking

NAME, VERSION, CHECKOUT = "SimuMax", "4dcaae513ba7679d56c116a17cd4a691ec41e252", "simumax"
_GIVEN = {
    "kernels": "its a100_pcie.json for every A100 and A800, its b200_bf16_ceperm.json for B200",
    "links": "rates of the row, of a lone device in its node those of the network; the rest as its B200 file",
    "zero": "stages 2, 3 and FSDP as 1: it has no other",
    "recomputation": "full as full_block of the layers that the row names, selective as sdp_only",
    "other": "its defaults",
}
VARIANTS = {
    "SimuMax": {**_GIVEN, "exchange of gradients": "as it adds it"},
    "SimuMax, exchange hidden": {**_GIVEN, "exchange of gradients": "taken off: a rule of the benchmark"},
}
NEEDS = ("intra_bytes_per_s", "inter_bytes_per_s", "devices_per_node", "devices", "tp", "pp", "recompute")
CANNOT = "models but decoders, other devices, adapters, fp8 and fp32, FSDP, time of the host, intervals"
_FILES = {"A100": "a100_pcie", "A800": "a100_pcie", "B200": "b200_bf16_ceperm"}


def _system(row: Mapping[str, Any]) -> dict[str, Any]:
    """Rates as its files count: 300 of an A100, whole nodes between nodes."""
    folder = PEERS / CHECKOUT / "configs" / "system"
    files = {name: json.loads((folder / f"{name}.json").read_text()) for name in set(_FILES.values())}
    found: dict[str, Any] = files[_FILES[row["device"].split("-")[0]]]
    found |= {"networks": files["b200_bf16_ceperm"]["networks"], "num_per_node": int(row["devices_per_node"])}
    outside = row["inter_bytes_per_s"] / 1e9
    for name in ("low_intra_node", "high_intra_node"):
        found["networks"][name]["bandwidth"]["gbps"] = row["intra_bytes_per_s"] / 1e9 or outside
    found["networks"]["inter_node"]["bandwidth"]["gbps"] = outside * row["devices_per_node"]
    return found


def _model(row: Mapping[str, Any]) -> dict[str, Any]:
    names = {
        "hidden": "hidden_size", "heads": "head_num", "kv_heads": "kv_head_num", "head_dim": "head_size",
        "ffn": "intermediate_size", "layers": "layer_num", "vocab": "vocab_size",
    }  # fmt: skip
    if row["experts"]:
        names |= {
            "experts": "expert_num", "top_k": "topk", "expert_ffn": "moe_ffn_hidden_size",
            "dense_layers": "dense_layers", "shared_ffn": "moe_shared_expert_intermediate_size",
        }  # fmt: skip
    found: dict[str, Any] = {theirs: int(row[ours]) for ours, theirs in names.items()}
    if not found.get("moe_shared_expert_intermediate_size"):
        found["moe_shared_expert_intermediate_size"] = None
    return {**found, "use_swiglu": bool(row["gated"]), "model_type": "moe" if row["experts"] else "dense"}


def _strategy(row: Mapping[str, Any]) -> dict[str, Any]:
    names = {
        "seq_len": "seq_len", "micro_batch_size": "micro_batch_size", "num_microbatches": "micro_batch_num",
        "devices": "world_size", "tp": "tp_size", "pp": "pp_size", "cp": "cp_size", "ep": "ep_size",
        "vpp": "interleaving_size",
    }  # fmt: skip
    recomputed = {
        "enable_recompute": row["recompute"] != "none",
        "recompute_granularity": {"full": "full_block", "selective": "sdp_only"}.get(row["recompute"]),
        "recompute_layer_num": int(row["recompute_layers"] or row["layers"]),
    }
    return {
        **{theirs: int(row[ours]) for ours, theirs in names.items()},
        **(recomputed if recomputed["enable_recompute"] else {"enable_recompute": False}),
        "dtype": SIXTEEN[row["precision"]], "zero_state": min(int(row["zero_stage"]), 1),
        "pp_comm_async": row["vpp"] == 1, "enable_sequence_parallel": bool(row["sequence_parallel"]),
    }  # fmt: skip


def _seconds(row: Mapping[str, Any], hidden: bool) -> float:
    from simumax.core import config, perf_llm  # type: ignore[import-not-found]

    job = perf_llm.PerfLLM()
    job.configure(
        strategy_config=config.StrategyConfig(**_strategy(row)),
        model_config=config.ModelConfig(**_model(row)),
        system_config=config.SystemConfig.init_from_dict(_system(row)),
    )
    job.run_estimate()
    number, unit = str(job.analysis_cost().get("duration_time_per_iter")).split()
    seconds = float(number) * {"ms": 1e-3, "s": 1.0, "us": 1e-6, "min": 60.0, "h": 3600.0}[unit]
    exposed_ms = job._compute_dp_time(perf_llm.FIRST_CHUNK)["dp_comm_exposed_time"]
    return seconds - float(exposed_ms) / 1e3 if hidden else seconds


def predict(rows: Sequence[Mapping[str, Any]], settings: Mapping[str, str]) -> list[Answer]:
    """Its step time."""
    sys.path[:0] = [str(PEERS / CHECKOUT)]
    hidden = settings["exchange of gradients"] != "as it adds it"
    return asking(rows, lambda row: lacking(row, _FILES, SIXTEEN), lambda row: _seconds(row, hidden))
