"""Logs of pretraining codes: Megatron-LM and what came of it, DeepSpeed, NeMo, MaxText, nanoGPT."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .contract import LoggedStep, finite
from .lines import Found, LineFormat, LineReader, count, number_after, time_of
from .settings import fields_of_settings, known_model, model_of_sizes
from .torchtitan import Torchtitan

_DOTTED = re.compile(r"^\s*(?:\[[^]]*\]:?)?\s*([A-Za-z_][\w-]*) \.{2,}\s*(.*?)\s*$")
_YAML = re.compile(r"^\s*(?:\[[^]]*\]:?)?\s*([A-Za-z_]\w*): (\S+)\s*$")


class Megatron(LineReader):
    """`iteration 100/ 500 | consumed samples: 6400 | elapsed time per iteration (ms): 528.9 | ...`."""

    # Source: megatron/training/training.py (training_log); arguments: megatron/training/arguments.py
    # (_print_args). Evaluation and checkpoints are outside of its interval timer.
    sign: tuple[str, ...] = ("elapsed time per iteration", "elapsed_time_per_iteration_ms")
    begins: tuple[str, ...] = ("-- arguments --",)
    ends: tuple[str, ...] = ("[after training is done]", "[exiting program", "after training is done")
    _step = re.compile(r"iteration:?\s+(\d+)\s*/\s*(\d+|infinity)")
    _time = re.compile(r"elapsed[ _]time[ _]per[ _]iteration[ _]\(?ms\)?: *([\d.]+)([KMG]?)")
    _batch = re.compile(r"global[ _]batch[ _]size: +(\d+)")
    _units = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9}
    launcher = "megatron"
    _arguments = ("num_layers", "micro_batch_size", "global_batch_size")
    """Some of what the list of arguments holds."""
    _sizes = re.compile(r"(world|(?:data|context|tensor-model|pipeline-model)-parallel)[ -]size: (\d+)")
    _printed: Mapping[str, str] = {
        "fp8_format": "fp8",
        "fp4_format": "fp4",
        "vocab_size": "padded_vocab_size",
    }
    """Flags that are printed under another name."""

    def _report(self, line: str) -> LoggedStep | None:
        step, time, batch = self._step.search(line), self._time.search(line), self._batch.search(line)
        if step is None or time is None:
            return None
        number = finite(time[1])
        return LoggedStep(
            step=int(step[1]),
            at_s=time_of(line),
            step_time_s=None if number is None else number * self._units[time[2]] / 1e3,
            global_batch_size=count(batch[1]) if batch else None,
            total_steps=count(step[2]),
        )

    def _head(self, line: str) -> None:
        if found := _DOTTED.match(line):
            self.remember(found[1].replace("-", "_"), found[2])
        elif found := _YAML.match(line):
            self.remember(found[1], found[2])
        elif line.startswith("using world size:"):
            for name, value in self._sizes.findall(line):
                self.remember(f"{name.replace('-', '_')}_size", value)

    @staticmethod
    def _degrees(settings: Mapping[str, str]) -> list[tuple[str, int | None]]:
        """What the first line says: devices and degrees."""
        names = {"gpus": "world_size", "tp": "tensor_model_parallel_size", "cp": "context_parallel_size",
                 "pp": "pipeline_model_parallel_size"}  # fmt: skip
        return [(ours, count(settings.get(name))) for ours, name in names.items()]

    def _found(self) -> Found:
        settings = dict(self.settings)
        for flag, printed in self._printed.items():
            if settings.get(printed, "None") != "None":
                settings[flag] = settings[printed]
        if settings.get("group_query_attention") not in ("True", "true"):
            settings.pop("num_query_groups", None)
        if settings.get("add_bias_linear") in ("False", "false"):
            settings["disable_bias_linear"] = "True"
        if settings.get("encoder_seq_length") and not count(settings.get("seq_length")):
            settings["seq_length"] = settings["encoder_seq_length"]
        if settings.get("checkpoint_activations") == "True":
            settings |= {"recompute_granularity": "full", "recompute_method": "uniform"}
        gpus = count(settings.get("world_size"))
        if not any(
            name in settings for name in self._arguments
        ):  # what is not printed may be set all the same
            said = self._degrees(settings)
            return Found(fields={ours: size for ours, size in said if size and (size > 1 or ours == "gpus")})
        found = fields_of_settings(self.launcher, settings, gpus=gpus)
        fields = found.fields
        if "precision" not in fields and settings.get("bf16") == settings.get("fp16") == "False":
            fields["precision"] = "fp32"
        if settings.get("tokenizer_type", "").startswith("Bert"):
            found.notes.append(
                "its tokenizer is BERT's: the model is an encoder, to be given by --set model="
            )
            fields.pop("model", None), fields.pop("sizes", None)
        if (stage := settings.get("zero_stage")) in ("1", "2", "3"):
            fields |= {"zero_stage": int(stage), "stack": "deepspeed-megatron"}
        return found


class DeepSpeed(LineReader):
    """`epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=25.0, CurrSamplesPerSec=25.7, ...`."""

    # Source: deepspeed/utils/timer.py (ThroughputTimer.stop), runtime/engine.py (_report_progress),
    # runtime/config.py (print).
    sign: tuple[str, ...] = ("SamplesPerSec=", "[Rank 0] step=")
    _step = re.compile(r"(?:global_step=|\b\d+/|\bstep=)(\d+), (?:\w*SamplesPerSec|skipped)=([\d.]+)")
    _rate = re.compile(r"(?:CurrSamplesPerSec|(?<!Avg)SamplesPerSec)=([\d.]+)")
    _names = {"train_batch_size": "global_batch_size", "train_micro_batch_size_per_gpu": "batch_size",
              "world_size": "gpus", "zero_optimization_stage": "zero_stage", "zero_stage": "zero_stage"}  # fmt: skip

    def _report(self, line: str) -> LoggedStep | None:
        step, rate = self._step.search(line), self._rate.search(line)
        if step is None:
            return None
        return LoggedStep(
            step=int(step[1]), at_s=time_of(line), samples_per_s=finite(rate[1]) if rate else None
        )

    def _head(self, line: str) -> None:
        _, _, printed = line.rpartition("print] ")
        if found := _DOTTED.match(printed):
            self.remember(found[1], found[2])

    def _found(self) -> Found:
        found = Found()
        for name, field in self._names.items():
            number = count(self.settings.get(name))
            if number is not None:
                found.fields[field] = number
        if self.settings.get("bfloat16_enabled") == "True":
            found.fields["precision"] = "bf16-mixed"
        elif self.settings.get("fp16_enabled") == "True" or self.settings.get("float16_enabled") == "True":
            found.fields["precision"] = "fp16-mixed"
        return found


class Nemo(Megatron):
    """`Training epoch 0, iteration 120/149 | ... | train_step_timing in s: 0.03146`, or the bar of NeMo 1."""

    # Source: nemo/lightning/pytorch/callbacks/progress_printer.py; the bar is Lightning's.
    sign: tuple[str, ...] = ("train_step_timing",)
    begins: tuple[str, ...] = ("Experiment configuration",)
    ends: tuple[str, ...] = ("`Trainer.fit` stopped",)
    _printed: Mapping[str, str] = {**Megatron._printed, "seq_length": "encoder_seq_length"}
    _line = re.compile(r"[Ee]poch (\d+),\s*iteration (\d+)(?:/(\d+))?")
    _bar = re.compile(r"(\d+)/(\d+) \[")

    def _report(self, line: str) -> LoggedStep | None:
        time_s = number_after(line, "train_step_timing in s") or number_after(line, "train_step_timing")
        batch = number_after(line, "global_batch_size")
        step = number_after(line, "global_step")
        if found := self._line.search(line):
            last = count(found[3])
            done = int(found[2]) + 1  # it counts from 0
            return LoggedStep(
                step=done, at_s=time_of(line), step_time_s=time_s, steps=1, global_batch_size=batch,
                total_steps=last + 1 if last else None,
            )  # fmt: skip
        found = self._bar.search(line)  # a bar says the step exactly, global_step=2e+3 does not
        if found is None and step is None:
            return None
        return LoggedStep(
            step=int(found[1]) if found is not None else int(step or 0) + 1,
            step_time_s=time_s,
            steps=1,
            total_steps=count(found[2]) if found else None,
        )

    def _found(self) -> Found:
        found = super()._found()
        if "precision" in self.settings and "precision" not in found.fields:
            kind = self.settings["precision"].strip("'\"")
            found.fields["precision"] = {"bf16": "bf16-mixed", "16": "fp16-mixed"}.get(kind, kind)
        devices, nodes = count(self.settings.get("devices")), count(self.settings.get("num_nodes"))
        if devices and nodes:
            found.fields |= {"gpus": devices * nodes, "nodes": nodes}
        return found


class MaxText(LineReader):
    """`completed step: 9, seconds: 1.341, TFLOP/s/device: 257.929, Tokens/s/device: 36653.244, loss: 0.0`."""

    # Source: MaxText/metric_logger.py, pyconfig.py ("Config param ..."). Steps count from 0.
    sign: tuple[str, ...] = ("completed step:",)
    _step = re.compile(r"completed step: (\d+), seconds: ([\d.]+)")
    _config = re.compile(r"Config param (\w+): (.*?)\s*$")
    _devices = re.compile(r"Num_devices: (\d+)")
    _names = {"max_target_length": "seq_len", "ici_tensor_parallelism": "tp"}
    _sizes = {
        "hidden": ("emb_dim", "base_emb_dim"),
        "layers": ("num_decoder_layers", "base_num_decoder_layers"),
        "heads": ("num_query_heads", "base_num_query_heads"),
        "kv_heads": ("num_kv_heads", "base_num_kv_heads"),
        "ffn": ("mlp_dim", "base_mlp_dim"),
        "vocab": ("vocab_size",),
    }
    """By two names: as they are, and before `global_parameter_scale`."""

    def _report(self, line: str) -> LoggedStep | None:
        found = self._step.search(line)
        if found is None:
            return None
        return LoggedStep(
            step=int(found[1]) + 1,
            at_s=time_of(line),
            step_time_s=finite(found[2]),
            steps=1,
            total_steps=count(self.settings.get("steps")),
        )

    def _head(self, line: str) -> None:
        if found := self._config.search(line):
            self.remember(found[1], found[2])
        elif found := self._devices.search(line):
            self.remember("num_devices", found[1])

    def _found(self) -> Found:
        found, settings = Found(), self.settings
        for name, field in self._names.items():
            if (number := count(settings.get(name))) and (number > 1 or field == "seq_len"):
                found.fields[field] = number
        batch = finite(settings.get("per_device_batch_size"))
        if batch is not None:
            found.fields["batch_size"] = int(batch) if batch.is_integer() else batch
        if gpus := count(settings.get("num_devices")):
            found.fields["gpus"] = gpus
        if settings.get("dtype") == "bfloat16":
            found.fields["precision"] = (
                "fp8-mixed" if "fp8" in settings.get("quantization", "") else "bf16-mixed"
            )
        model = known_model(settings.get("model_name", ""))
        sizes = {
            ours: number
            for ours, names in self._sizes.items()
            if (number := next(filter(None, (count(settings.get(name)) for name in names)), None))
        }
        if (experts := count(settings.get("num_experts"))) and experts > 1:
            sizes |= {"experts": experts, "top_k": count(settings.get("num_experts_per_tok")) or 1}
        if model:
            found.fields["model"] = model
        elif {"layers", "hidden", "heads"} <= sizes.keys():
            name, own, notes = model_of_sizes(sizes, {"norm": "rms", "positions": "rotary", "gated": True})
            found.fields |= {"model": name, **({"sizes": own} if own else {})}
            found.notes += notes
        if settings:
            found.fields |= {"framework": "jax"}
        return found


class NanoGpt(LineReader):
    """`iter 100: loss 2.4049, time 929.71ms, mfu 16.59%`."""

    # Source: train.py of nanoGPT: one step is timed; the one after an evaluation holds the evaluation.
    sign: tuple[str, ...] = ("time ", "train loss")
    begins: tuple[str, ...] = ("tokens per iteration will be",)
    _step = re.compile(r"\biter (\d+): loss [\w.+-]+, time ([\d.]+)ms")
    _evaluated = re.compile(r"\bstep \d+: train loss")
    _override = re.compile(r"Overriding: (\w+) = (.+?)\s*$")
    _names = {
        "batch_size": "batch_size",
        "gradient_accumulation_steps": "num_microbatches",
        "block_size": "seq_len",
    }

    def __init__(self) -> None:
        super().__init__()
        self._paused = False

    def _report(self, line: str) -> LoggedStep | None:
        found = self._step.search(line)
        if found is None:
            return None
        paused, self._paused = self._paused, False
        return LoggedStep(
            step=int(found[1]) + 1,
            at_s=time_of(line),
            step_time_s=(finite(found[2]) or 0.0) / 1e3 or None,
            steps=1,
            after_pause=paused,
            total_steps=count(self.settings.get("max_iters")),
        )

    def _head(self, line: str) -> None:
        if self._evaluated.search(line):
            self._paused = True
        elif found := self._override.search(line):
            self.remember(found[1], found[2])

    def _found(self) -> Found:
        found = Found()
        for name, field in self._names.items():
            if number := count(self.settings.get(name)):
                found.fields[field] = number
        if self.settings.get("dtype", "").strip("'\"") == "bfloat16":
            found.fields["precision"] = "bf16-mixed"
        return found


FORMATS = (
    LineFormat(
        name="torchtitan", description="torchtitan: step: 10 loss: 4.1 ... tps: 7,282", reader=Torchtitan
    ),
    LineFormat(name="nemo", description="NeMo: ... train_step_timing in s: 1.23", reader=Nemo),
    LineFormat(
        name="megatron",
        description="Megatron-LM, Megatron-DeepSpeed, GPT-NeoX, Megatron-Bridge, nanotron: "
        "iteration 10/ 500 | ... | elapsed time per iteration (ms): 528.9",
        reader=Megatron,
    ),
    LineFormat(name="maxtext", description="MaxText: completed step: 9, seconds: 1.341, ...", reader=MaxText),
    LineFormat(name="nanogpt", description="nanoGPT: iter 100: loss 2.4, time 929.71ms", reader=NanoGpt),
    LineFormat(
        name="deepspeed", description="DeepSpeed: step=10 ... CurrSamplesPerSec=25.7", reader=DeepSpeed
    ),
)
