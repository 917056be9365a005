"""Logs of torchtitan."""

from __future__ import annotations

import json
import math
import re

from precision_time.launch.emit import known_launcher

from .contract import LoggedStep
from .lines import Found, LineReader, count, number_after, time_of
from .settings import fields_of_settings, known_device, known_model, model_of_sizes

MOST_JSON = 400_000
"""Characters of a printed configuration that are read."""


class Torchtitan(LineReader):
    """`step: 10  loss:  4.1  memory: 36.90GiB(46.63%)  tps: 7,282  tflops: 0.52  mfu: 0.17%`."""

    # Source: torchtitan/components/metrics.py (MetricsProcessor.log): tps is tokens/s of one device.
    sign: tuple[str, ...] = ("tps:",)
    begins: tuple[str, ...] = ("Starting job:", "torchtitan version:")
    ends: tuple[str, ...] = ("Training completed",)
    _step = re.compile(r"(?<!validate )step:\s*(\d+)\s.*?tps:\s*([\d,]+)")
    _sizes = re.compile(
        r"local batch size (\d+), global batch size (\d+),(?: gradient accumulation steps \d+,)?"
        r" sequence length (\d+),\s+total steps (\d+)"
    )
    _mesh = re.compile(r"Building \d-D device mesh with (\[[^]]*\]), (\[[^]]*\])")
    _parallelism = re.compile(r"Building device mesh with parallelism: (.+)")
    _model = re.compile(r"Building (\S+) (\S+)(?: with \w*Args\((.*))?$")
    _device = re.compile(r"\b\w+ capacity: (.+?)(?: \(\d+\))? with ([\d.]+)GiB")
    _axes = {"tp": "tp", "pp": "pp", "cp": "cp", "ep": "ep"}

    def __init__(self) -> None:
        super().__init__()
        self._json: list[str] | None = None

    def _report(self, line: str) -> LoggedStep | None:
        found = self._step.search(line)
        if found is None:
            return None
        return LoggedStep(step=int(found[1]), at_s=time_of(line), total_steps=self.total_steps)

    def _head(self, line: str) -> None:
        if self._json is not None:
            self._more(line)
        elif "Running with" in line and "{" in line:
            self._json = []
            self._more(line[line.index("{") :])
        elif found := self._sizes.search(line):
            self.total_steps = count(found[4])
            for name, value in zip(("local", "global", "seq"), found.groups(), strict=False):
                self.remember(name, value)
        elif found := self._mesh.search(line):
            self.remember("mesh", f"{found[1]}{found[2]}")
        elif found := self._parallelism.search(line):
            axes = dict(re.findall(r"(\w+)=(\d+)", found[1]))
            self.remember("mesh", f"{list(axes)}{list(axes.values())}")
        elif found := self._model.search(line):
            self.remember("model", f"{found[1].rpartition('/')[2]} {found[2]}")
            self.remember("arguments", found[3] or "")
        elif found := self._device.search(line):
            self.remember("device", found[1])
        elif "Applied full activation checkpointing" in line:
            self.remember("recompute", "full")
        elif "Applied selective activation checkpointing" in line:
            self.remember("recompute", "selective")
        elif "Applied FSDP to the model" in line or "(dp mode=fully_shard)" in line:
            self.remember("zero_stage", "3")
        elif "with torch.compile" in line:
            self.remember("compiler", "inductor")
        elif "Float8" in line and "active" in line:
            self.remember("precision", "fp8-mixed")

    def _more(self, line: str) -> None:
        """Another line of the printed configuration."""
        assert self._json is not None
        self._json.append(line)
        text = "\n".join(self._json)
        try:
            tree = json.loads(text)
        except (ValueError, RecursionError):
            if len(text) > MOST_JSON:
                self._json = None
            return
        self._json = None
        if isinstance(tree, dict):
            for part, settings in tree.items():
                for name, value in settings.items() if isinstance(settings, dict) else ():
                    if isinstance(value, str | int | float):
                        self.remember(f"{part}.{name}", str(value))

    def _found(self) -> Found:
        gpus, degrees = self._degrees()
        found = fields_of_settings("torchtitan", self.settings, gpus=gpus)
        fields, settings = found.fields, self.settings
        fields.update(degrees)
        if gpus:
            fields["gpus"] = gpus
        for name, field in (("local", "batch_size"), ("global", "global_batch_size"), ("seq", "seq_len")):
            if count(settings.get(name)):
                fields[field] = int(settings[name])
        for name in ("recompute", "compiler", "precision"):
            if name in settings:
                fields[name] = settings[name]
        if "zero_stage" in settings and (gpus or 2) > 1:
            fields["zero_stage"] = 3
        if device := known_device(settings.get("device", "")) if "device" in settings else None:
            fields["device"] = device
        self._add_model(found)
        if fields.get("pp", 1) > 1 and "parallelism.pipeline_parallel_microbatch_size" not in settings:
            fields.pop("batch_size", None)
            found.notes.append(
                "its local batch is of a whole pipeline: give the micro batch, --set batch_size="
            )
        if self.starts or settings:
            fields.setdefault("stack", "torchtitan")
        return found

    def _degrees(self) -> tuple[int | None, dict[str, int]]:
        """Devices, and degrees above 1, of the printed mesh."""
        parts = re.findall(r"'?(\w+)'?", self.settings.get("mesh", ""))
        names, sizes = parts[: len(parts) // 2], parts[len(parts) // 2 :]
        if not names or not all(size.isdigit() and len(size) < 8 for size in sizes):
            return None, {}
        mesh = {name: int(size) for name, size in zip(names, sizes, strict=True)}
        found = {field: mesh[axis] for axis, field in self._axes.items() if mesh.get(axis, 1) > 1}
        if mesh.get("dp_replicate", 1) > 1 and mesh.get("dp_shard", 1) > 1:
            found["dp_shard"] = mesh["dp_shard"]
        if mesh.get("dp_shard", 1) > 1:
            found["zero_stage"] = 3
        return math.prod(size for axis, size in mesh.items() if axis != "ep"), found

    def _add_model(self, found: Found) -> None:
        name, _, flavor = self.settings.get("model", "").partition(" ")
        name = name or self.settings.get("model.name", "")
        flavor = flavor or self.settings.get("model.flavor", "")
        if not name:
            return
        known = _of_torchtitan(f"{name}_{flavor}".lower()) or known_model(name, flavor)
        text = self.settings.get("arguments", "")
        if known or not text:
            if known:
                found.fields["model"] = known
            return
        numbers = {key: number_after(text, key) for key in ("dim", "n_layers", "n_heads", "n_kv_heads",
                   "vocab_size", "multiple_of", "ffn_dim_multiplier")}  # fmt: skip
        dim, layers, heads = numbers["dim"], numbers["n_layers"], numbers["n_heads"]
        if not (dim and layers and heads):
            return
        ffn = int(8 * dim / 3) * (numbers["ffn_dim_multiplier"] or 1.0)
        multiple = int(numbers["multiple_of"] or 256)
        sizes = {"hidden": int(dim), "layers": int(layers), "heads": int(heads),
                 "kv_heads": int(numbers["n_kv_heads"] or heads),
                 "ffn": multiple * math.ceil(int(ffn) / multiple)}  # fmt: skip
        if numbers["vocab_size"]:
            sizes["vocab"] = int(numbers["vocab_size"])
        model, own, notes = model_of_sizes(sizes, {"norm": "rms", "positions": "rotary", "gated": True})
        found.fields |= {"model": model, **({"sizes": own} if own else {})}
        found.notes += notes


def _of_torchtitan(config: str) -> str | None:
    """The model of a configuration of torchtitan, by the table of the launcher."""
    models = known_launcher("torchtitan").models
    return next((name for name, names in models.items() if names.get("config") == config), None)
