"""Lightning's batch-size finder, begun at the largest batch that is predicted to fit."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from precision_time.errors import import_failure
from precision_time.request.request import Request

from .batch_size import MOST, predicted_batch_size

try:
    from precision_time.capture.timm_models import import_torchvision

    with suppress(ImportError, RuntimeError):  # Lightning imports it where it is installed, broken or not
        import_torchvision()
    from lightning.pytorch.callbacks import BatchSizeFinder
    from lightning.pytorch.tuner.batch_size_scaling import _reset_dataloaders
    from lightning.pytorch.utilities.parsing import lightning_setattr
except ImportError as error:
    raise import_failure(
        error,
        name="lightning",
        package="lightning",
        extra="precision-time-integrations[all]",
        purpose="find a batch size",
    ) from error


def first_batch_size(request: Request | Mapping[str, Any], *, mode: str = "power", most: int = MOST) -> int:
    """Where Lightning's finder should begin.

    For `Tuner.scale_batch_size` give it as `init_val`, and set the module's `batch_size` to it as well:
    Lightning 2.6 makes its first try with the loader that it already has.

    Args:
        request: What is trained.
        mode: `power`, which doubles from here, or `binsearch`.
        most: Its `max_val`.
    """
    predicted = max(predicted_batch_size(request, most=most), 1)
    return 1 << (predicted.bit_length() - 1) if mode == "power" else predicted


class PredictedBatchSizeFinder(BatchSizeFinder):  # type: ignore[misc]
    """`BatchSizeFinder` whose first try is the largest batch that is predicted to fit.

    It tries as Lightning's does, so it ends at the same batch (`power`: that of powers of two).
    """

    def __init__(
        self,
        request: Request | Mapping[str, Any],
        *,
        mode: str = "power",
        max_val: int = MOST,
        **options: Any,
    ) -> None:
        """A finder for a request.

        Args:
            request: What is trained.
            mode: `power` or `binsearch`.
            max_val: The largest batch to try.
            options: Others of `BatchSizeFinder`: steps_per_trial, max_trials, batch_arg_name, margin.
        """
        first = first_batch_size(request, mode=mode, most=max_val)
        super().__init__(mode=mode, init_val=first, max_val=max_val, **options)

    def scale_batch_size(self, trainer: Any, pl_module: Any) -> None:
        """Find the batch, the first try with a loader of the first batch."""
        if not trainer.fast_dev_run:
            lightning_setattr(pl_module, self._batch_arg_name, self._init_val)
            _reset_dataloaders(trainer)
        super().scale_batch_size(trainer, pl_module)
