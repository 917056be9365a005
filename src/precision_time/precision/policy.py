"""A precision is a policy, not a word: which type each part of a training step is held and computed in.

The table of named policies lives in `precision/data/policies.toml`; the spellings that people use
for them in `precision/data/aliases.toml`.
"""

from __future__ import annotations

from enum import StrEnum

from ..cache import Deriving
from ..io import packaged_toml
from ..records import dataclass


class DType(StrEnum):
    """Number formats, by the words used everywhere in this project; `data/dtypes.toml` has the rest."""

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"  # stored as fp32, multiplied as tf32
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    FP4 = "fp4"
    INT8 = "int8"

    @property
    def num_bytes(self) -> float:
        """Bytes per element in memory."""
        return _NUM_BYTES[self]

    @property
    def runs_as(self) -> DType | None:
        """The type whose peak is taken on a device that has no peak of this one; None: there is none."""
        wider = _DTYPES[self.value].get("runs_as")
        return None if wider is None else DType(wider)


_DTYPES = packaged_toml(__package__, "data/dtypes.toml")
_NUM_BYTES = {dtype: float(_DTYPES[dtype.value]["bytes"]) for dtype in DType}
NARROW = frozenset(dtype for dtype in DType if _DTYPES[dtype.value].get("narrow", False))
"""Types whose products read operands that have to be quantized first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerRule:
    """The type of the operators whose name matches a pattern (`rules.py`)."""

    pattern: str
    dtype: DType
    """As held: operators of 32 bits compute in fp32, products of 16 bits or less in this type."""
    multiplied: DType
    """The type whose units multiply it; as `dtype` until a device is known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionPolicy(Deriving):
    """Types of every part of a training step under one precision setting."""

    name: str
    """Canonical: fp64, fp32, tf32, fp16, bf16, fp16-mixed, bf16-mixed, fp8-mixed, nvfp4-mixed, int8-mixed; or
    that of a policy of the user's own (`own.py`)."""
    matmul: DType
    """GEMMs, attention, recurrent cells."""
    conv: DType
    """Convolutions: differs from `matmul` where TF32 is on for cuDNN only."""
    activation: DType
    """Storage of activations between operators outside the fp32 list."""
    param: DType
    """Parameters as the model holds them."""
    grad: DType
    reduce: DType
    """Gradients on the wire. DDP under autocast sends fp32; a compress hook or ZeRO sends 16 bits."""
    master: DType | None
    """Separate master copy of the parameters in the optimizer, if any."""
    optimizer_state: DType
    autocast: bool
    """Per-operator lists decide (CUDA autocast); otherwise everything runs in `activation`."""
    loss_scaling: bool
    """GradScaler: loss multiply, unscale pass, host synchronization."""
    fp8_recipe: str | None = None
    """delayed, current, blockwise, mxfp8 ... (`data/recipes.toml`); None without narrow products."""
    gather: DType | None = None
    """Weights of narrow products on the wire of a parameter all-gather; None: as all other parameters."""
    wide_layers: tuple[int, int] = (0, 0)
    """First and last layers whose products stay in `activation` (Megatron's first-last-layers-bf16)."""
    ops: tuple[tuple[str, str], ...] = ()
    """Operators or classes of them, and how autocast treats them: lower, fp32, promote or same; what is not
    named is in torch's lists where `autocast` is set."""
    layers: tuple[LayerRule, ...] = ()
    """Types of layers by name, the last that matches: they come before `ops`."""
    amax_history: int | None = None
    """Past maxima that a scale is taken from, where another number than the recipe's."""
    static_scaling: bool = False
    """The loss scale is fixed: gradients are unscaled, nobody waits to hear whether they overflowed."""
    summary: str = ""
    """One sentence for `precision-time list precisions`."""

    @property
    def ruled(self) -> bool:
        """Whether operators or layers have rules of their own."""
        return bool(self.ops or self.layers)

    @property
    def narrow(self) -> DType | None:
        """The type of its narrow products, of all or of some layers; None without."""
        types = (self.matmul, self.conv, *(rule.dtype for rule in self.layers))
        return next((dtype for dtype in types if dtype in NARROW), None)

    @property
    def gathered(self) -> DType:
        """Type of parameters on the wire where nothing narrower is gathered: the type they are used in."""
        return self.activation if self.autocast else self.param
