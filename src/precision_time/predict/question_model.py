"""What answers to questions are off by that leave much open: learned from measured runs that were asked so.

The scenarios of practice (`scenarios.py`) are fewer than what people do, and a question says more of the
answer than they know: who asks for 64 V100 without a framework ran what was usual there. Measured runs were
asked at several levels of saying, by predictors and practice that had not seen them. Trees learned from the
errors what the median of a mixture is off by, and a regression how wide its interval has to be. Far from the
runs that the predictor learned from, the correction shrinks. `packages/papers/studies/questions.py` fits and
scores both; `data/question_model.safetensors` is what it wrote.

The trees read what the predictor reads of the row's own job, its distance to the training set, and what was
said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..array_file import mapped
from ..arrays import Bools, Floats, sum_in_order
from ..cache import data
from ..io import packaged
from ..learn.table import JobTable
from ..learn.trees import TreeEnsemble
from ..records import dataclass
from ..request.request import Request

SAID: Mapping[str, tuple[str, ...]] = {
    "framework": ("framework", "stack"),
    "stack": ("stack",),
    "software": ("software", "year"),
    "compiler": ("compiler",),
    "input": ("real_input", "loader"),
}
"""What a question may say of its software, by the fields that say it. Layout, links and batch are none: doors
that try many of them (`plan`, `layout`) say them of a question that does not, and answer the same."""
_STACK = [*SAID].index("stack")
_READ = (
    *("family.", "matmul.", "vendor.", "framework", "stack.", "suite.", "compiler.", "share.", "log_peak"),
    *("log_params", "trainable_share", "log_image_size", "log_seq_len", "autocast", "log_fp32_peak", "units"),
    *("log_bandwidth", "log_ridge", "log_memory", "tdp", "device_year", "pcie", "channels_last", "fused"),
    *("class.attention", "class.conv", "class.gemm", "class.embedding", "class.depthwise_conv", "class.rnn"),
    *("real_input", "host_over_kernels", "link_over_compute", "log_mean_kernel_s", "log_launches"),
    *("mean_inner", "mean_kernel_area", "weight_gradient_share"),
)  # fmt: skip
"""How the columns begin that trees read: not the sizes that a sweep varies, but how time is shared."""
_FADE = 0.5
"""Of kinds at distances d, the product of (1 + d)^-0.5 of a correction is left. Without it, questions of more
devices than any measured run had 60 % of error instead of 50."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class QuestionModel:
    """Corrections of the answers to questions."""

    center: TreeEnsemble
    """log(measured / median of the mixture)."""
    width: Floats
    """log of the factor on the width of a mixture, in log time: width[0] + width[1:] * log(1 + distance),
    shape (1 + kinds,)."""

    def corrected(
        self,
        jobs: JobTable,
        distance: Floats,
        said: Floats,
        several: Bools,
        mixed: tuple[Floats, Floats, Floats],
    ) -> tuple[Floats, Floats, Floats]:
        """Medians and intervals of mixtures after the correction, shape (n,) each.

        Of a sweep of batches each row's correction takes at least what that of a smaller batch takes by the
        formulas, as in `Predictor.times`.

        Args:
            jobs: The rows' own, in the columns of the predictor.
            distance: Of these to the training set by kind, shape (n, kinds).
            said: What the questions say (`said_of`), shape (n, len(SAID)).
            several: Whether a row has more than one scenario; one alone is the predictor's own answer. So is
                that of a question that says its stack.
            mixed: Medians and intervals of the mixtures.
        """
        several = several & (said[:, _STACK] < 1.0)
        if not several.any():
            return mixed
        every, kinds = jobs.opened(), np.log1p(jobs.of_halves(distance))
        trees = self.center.predict(read_of(every, jobs.of_halves(said), kinds))
        off = every.analytical_s * np.exp(trees * left_of(kinds))
        off = jobs.folded(off) / jobs.analytical_s
        wider = np.exp(self.width[0] + sum_in_order(kinds[: len(jobs)] * self.width[1:]))
        median, low, high = mixed
        return (
            np.where(several, median * off, median),
            np.where(several, median * off * (low / median) ** wider, low),
            np.where(several, median * off * (high / median) ** wider, high),
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays for its file."""
        return self.center.to_arrays("center") | {"width": self.width}


@data
def question_model() -> QuestionModel:
    """The one that ships."""
    arrays, _ = mapped(packaged(__package__, "data/question_model.safetensors"))
    return QuestionModel(center=TreeEnsemble.from_arrays(arrays, "center"), width=arrays["width"])


def said_of(requests: Sequence[Request]) -> Floats:
    """Whether requests say each of SAID, 1 or 0, shape (n, len(SAID))."""
    given = [
        [not request.model_fields_set.isdisjoint(fields) for fields in SAID.values()] for request in requests
    ]
    return np.array(given, dtype=np.float64)


def read_of(jobs: JobTable, said: Floats, kinds: Floats) -> Floats:
    """What the trees read, shape (n, columns).

    Args:
        jobs: n jobs.
        said: Shape (n, len(SAID)).
        kinds: log(1 + distance) to the training set by kind, shape (n, kinds).
    """
    columns = [place for place, name in enumerate(jobs.names) if name.startswith(_READ)]
    return np.concatenate([jobs.features[:, columns], said, kinds], axis=1)


def left_of(kinds: Floats) -> Floats:
    """Share of a correction that is left so far from the training set, shape (n,)."""
    left: Floats = np.exp(-_FADE * sum_in_order(kinds))
    return left
