"""LightGBM as it comes, on the numbers and words of the rows: what learning alone gives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import lightgbm
import numpy as np

from predictors.contract import Answer

NAME, VERSION, LEARNS = "LightGBM", lightgbm.__version__, True
VARIANTS = {"LightGBM, untuned": {"parameters": "its defaults", "target": "log of seconds", "seed": 0}}
CANNOT = "anything beyond the range of the known runs"
_NUMBERS = (
    *("params", "trainable_params", "training_flops_per_sample", "forward_flops_per_sample", "seq_len"),
    *("dp", "tp", "pp", "cp", "ep", "vpp", "zero_stage", "micro_batch_size", "num_microbatches"),
    *("global_batch_size", "sequence_parallel", "devices", "nodes", "devices_per_node", "peak_flops_per_s"),
    *("memory_bytes", "memory_bytes_per_s", "intra_bytes_per_s", "inter_bytes_per_s"),
)
_WORDS = ("family", "device", "precision", "recompute", "framework", "optimizer")
_fitted: dict[str, Any] = {}


def _features(rows: Sequence[Mapping[str, Any]], words: Mapping[str, Sequence[str]]) -> Any:
    numbers = [[math.nan if row[name] is None else row[name] for name in _NUMBERS] for row in rows]
    codes = [
        [words[name].index(row[name]) if row[name] in words[name] else -1 for name in _WORDS] for row in rows
    ]
    return np.hstack([np.array(numbers, dtype=float), np.array(codes, dtype=float)])


def fit(known: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> None:
    """Trees for the logarithm of the time."""
    words = {name: sorted({row[name] for row in known}) for name in _WORDS}
    columns = list(range(len(_NUMBERS), len(_NUMBERS) + len(_WORDS)))
    data = lightgbm.Dataset(
        _features(known, words),
        np.log([row["measured_s"] for row in known]),
        categorical_feature=columns,
    )
    parameters = {"seed": settings["seed"], "num_threads": 1, "verbosity": -1}
    _fitted.update(words=words, trees=lightgbm.train(parameters, data))


def predict(rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> list[Answer]:
    """What the trees say."""
    del settings
    logs = _fitted["trees"].predict(_features(rows, _fitted["words"]), num_threads=1)
    return [Answer(seconds=float(math.exp(value))) for value in logs]
