"""A Workload: what is computed in one training step, before precision and hardware are chosen."""

from __future__ import annotations

from ..records import dataclass
from .graph import OpGraph
from .method import Method


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """One training step's mathematics and the dataset it walks over."""

    name: str
    """Canonical model name (timm or Hugging Face spelling where they have the model)."""
    graph: OpGraph
    family: str
    """Coarse architecture family: cnn, vit, transformer-decoder, transformer-encoder,
    transformer-encdec, moe, rnn, detection, segmentation, speech, recsys, gnn, diffusion, other."""
    task: str = ""
    optimizer: str = "sgd"
    """sgd, momentum-sgd, adam, adamw, lamb, adafactor, ... (names of cost/data/optimizers.toml)."""
    sample_unit: str = "sample"
    """What one sample is, for throughput: image, sequence, volume, utterance, ..."""
    units_per_sample: float = 1.0
    """Tokens, frames ... per sample, where throughput is usually quoted in those."""
    throughput_unit: str = "samples/s"
    dataset: str = ""
    dataset_samples: int | None = None
    """Samples per epoch; None where it is unknown."""
    adapter: str = ""
    """Kind of adapters that are trained beside a frozen base; empty where none."""
    largest: OpGraph | None = None
    """Where samples differ in length, the graph of the longest, for which memory must do."""
    samples_per_row: float = 1.0
    """Samples of the dataset that share a row of the batch (packing)."""
    real_share: float = 1.0
    """Share of the tokens of a batch that is no padding."""
    method: Method | None = None
    """What runs beside the update; None for plain training."""
    assumptions: tuple[str, ...] = ()
    """What was assumed about the model because the caller left it open, in words."""
    warnings: tuple[str, ...] = ()
    """What of the model could not be seen, in words."""

    @property
    def answers_per_prompt(self) -> int | None:
        """Samples of a batch that one sample of the dataset makes where answers are generated; else None."""
        generation = None if self.method is None else self.method.generation
        return None if generation is None else generation.answers_per_prompt

    @property
    def generating_devices(self) -> int:
        """Devices that generate answers and do not train."""
        generation = None if self.method is None else self.method.generation
        return 0 if generation is None else generation.devices

    @property
    def rows_per_sample(self) -> int:
        """Sequences that one sample of the batch is: two where answers are compared."""
        return self.method.rows_per_sample if self.method is not None else 1
