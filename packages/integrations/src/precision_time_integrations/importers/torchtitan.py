"""Logs of torchtitan: as described, with a configuration in JSON, a mesh and the arguments of a model."""

from __future__ import annotations

import json
import math
import re

from precision_time.launch.emit import known_launcher

from .described import DescribedLog
from .heads import found_in
from .lines import Found, number_after
from .settings import known_model, with_model_of_sizes

MOST_JSON = 400_000
"""Characters of a printed configuration that are read."""
_ARGUMENTS = ("dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "multiple_of", "ffn_dim_multiplier")
_KINDS = {"norm": "rms", "positions": "rotary", "gated": True}


class Torchtitan(DescribedLog):
    """`step: 10  loss:  4.1  memory: 36.90GiB(46.63%)  tps: 7,282  tflops: 0.52  mfu: 0.17%`."""

    json: list[str] | None = None
    """Lines of a configuration that is being printed."""

    def _head(self, line: str) -> None:
        if self.json is None and "Running with" in line and "{" in line:
            self.json, line = [], line[line.index("{") :]
        if self.json is None:
            super()._head(line)
            return
        self.json.append(line)
        text = "\n".join(self.json)
        try:
            tree = json.loads(text)
        except (ValueError, RecursionError):
            self.json = None if len(text) > MOST_JSON else self.json
            return
        self.json = None
        for part, settings in tree.items() if isinstance(tree, dict) else ():
            for name, value in settings.items() if isinstance(settings, dict) else ():
                if isinstance(value, str | int | float):
                    self.remember(f"{part}.{name}", str(value))

    def found(self) -> Found:
        """The settings, the mesh and the model as fields of a request."""
        gpus, degrees = self._degrees()
        found = found_in(self.form.described, self.settings, gpus=gpus)
        fields = found.fields
        fields |= degrees | ({"gpus": gpus} if gpus else {})
        if "sharded" in self.settings and (gpus or 2) > 1:
            fields["zero_stage"] = 3
        self._add_model(found)
        whole = "parallelism.pipeline_parallel_microbatch_size" not in self.settings
        if fields.get("pp", 1) > 1 and whole:
            fields.pop("batch_size", None)
            found.notes.append(
                "its local batch is of a whole pipeline: give the micro batch, --set batch_size="
            )
        if self.starts or self.settings:
            fields.setdefault("stack", "torchtitan")
        return found

    def _degrees(self) -> tuple[int | None, dict[str, int]]:
        """Devices, and degrees above 1, of the printed mesh."""
        pairs = re.findall(r"(\w+)=(\d{1,7})", self.settings.get("parallelism", ""))
        if not pairs:
            parts = re.findall(r"'?(\w+)'?", self.settings.get("mesh", ""))
            half = len(parts) // 2
            pairs = list(zip(parts[:half], parts[half:], strict=False))
        if not pairs or not all(size.isdigit() and len(size) < 8 for _, size in pairs):
            return None, {}
        mesh = {name: int(size) for name, size in pairs}
        axes = self.form.described["axes"]
        found = {field: mesh[axis] for axis, field in axes.items() if mesh.get(axis, 1) > 1}
        if mesh.get("dp_replicate", 1) > 1 and mesh.get("dp_shard", 1) > 1:
            found["dp_shard"] = mesh["dp_shard"] * mesh.get("cp", 1)  # there without context ranks
        if mesh.get("dp_shard", 1) > 1:
            found["zero_stage"] = 3
        return math.prod(size for axis, size in mesh.items() if axis != "ep"), found

    def _add_model(self, found: Found) -> None:
        said = self.settings.get("model", "").partition(" ")
        name = said[0] or self.settings.get("model.name", "")
        flavor = said[2] or self.settings.get("model.flavor", "")
        config = f"{name}_{flavor}".lower()
        models = known_launcher("torchtitan").models
        named = next((ours for ours, names in models.items() if names.get("config") == config), None)
        if known := name and (named or known_model(name, flavor)):
            found.fields["model"] = known
            return
        numbers = {key: number_after(self.settings.get("arguments", ""), key) for key in _ARGUMENTS}
        dim, layers, heads = numbers["dim"], numbers["n_layers"], numbers["n_heads"]
        if not (name and dim and layers and heads):
            return
        ffn = int(8 * dim / 3) * (numbers["ffn_dim_multiplier"] or 1.0)
        multiple = int(numbers["multiple_of"] or 256)
        sizes = {"hidden": int(dim), "layers": int(layers), "heads": int(heads),
                 "kv_heads": int(numbers["n_kv_heads"] or heads),
                 "ffn": multiple * math.ceil(int(ffn) / multiple)}  # fmt: skip
        if numbers["vocab_size"]:
            sizes["vocab"] = int(numbers["vocab_size"])
        with_model_of_sizes(found.fields, found.notes, sizes, _KINDS)
