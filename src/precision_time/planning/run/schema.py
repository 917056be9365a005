"""What can be said of a whole run beside its request: options (`run` in a job file), lengths of phases."""

# No annotation is text here: what is evaluated when the class is made need not be parsed again.
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from ...errors import ConfigError
from ...fields import FILE, NUMBER, BatchSize, Count, LongCount, PositiveNumber, Read
from ...io import packaged_toml
from ...request.validation import Fields
from ...units import duration_s


def _duration(given: Any, field: str) -> Any:
    return given if isinstance(given, bool) else duration_s(field, given)


def _duration_or_none(given: Any, field: str) -> Any:
    return 0.0 if str(given).strip() in ("0", "0.0", "0s") else _duration(given, field)


Duration = Annotated[float, Read(_duration, named=True)]
Overhead = Annotated[float, Read(_duration_or_none, named=True)]
Rate = Annotated[float, NUMBER, Meta(ge=0.0, le=1e6)]


class RunOptions(Fields):
    """What a run costs beside its steps; whatever is not given is taken from `data/whole_runs.toml`."""

    words: ClassVar[Mapping[str, Mapping[str, Any]]] = packaged_toml(__package__, "data/options.toml")

    start_up: Overhead | None = None
    compile_time: Overhead | None = None
    warm_up_steps: Annotated[float | None, NUMBER, Meta(ge=0.0, le=1e6)] = None
    evaluation_every: Count | None = None
    evaluation_samples: LongCount | None = None
    checkpoint_interval: Duration | None = None
    checkpoint_steps: Count | None = None
    checkpoint_bytes: PositiveNumber | None = None
    async_checkpoints: bool | None = None
    storage_rate: PositiveNumber | None = None
    mtbf: Duration | None = None
    failures: bool | None = None
    recovery: Overhead | None = None
    spot: bool | None = None
    reclaim_rate: Rate | None = None
    region: str | None = None
    cloud: str | None = None
    usd_per_device_hour: PositiveNumber | None = None
    own: bool | None = None
    kwh_price: PositiveNumber | None = None
    pue: PositiveNumber | None = None
    power: PositiveNumber | None = None
    grid_hours: Annotated[Path | None, FILE] = None
    start_hour: Annotated[float | None, NUMBER, Meta(ge=0.0, le=1e6)] = None
    embodied_g_per_device_hour: PositiveNumber | None = None
    critical_batch: BatchSize | None = None
    reference_batch: BatchSize | None = None

    def _check_agreement(self) -> None:
        """What is said fits together.

        Raises:
            ConfigError: If it does not.
        """
        if self.checkpoint_interval is not None and self.checkpoint_steps is not None:
            raise ConfigError(
                f"checkpoint_interval={self.checkpoint_interval:g} s and checkpoint_steps="
                f"{self.checkpoint_steps} both say how often checkpoints are written. To fix: give one."
            )
        if (self.evaluation_every is None) != (self.evaluation_samples is None):
            raise ConfigError(
                "An evaluation is every so many steps, of so many samples. To fix: give both "
                "evaluation_every and evaluation_samples, or neither."
            )
        for name in ("mtbf", "reclaim_rate", "spot", "recovery"):
            if self.failures is False and getattr(self, name):
                raise ConfigError(
                    f"{name}={getattr(self, name):g} changes nothing without failures. To fix: leave out "
                    f"{name}, or failures=false (--no-failures)."
                )
        if self.spot is False and self.reclaim_rate:
            raise ConfigError(
                f"reclaim_rate={self.reclaim_rate:g} and spot=false contradict each other. To fix: leave out "
                "one of them."
            )
        if self.kwh_price is not None and not self.own:
            raise ConfigError(
                f"kwh_price={self.kwh_price:g} changes nothing of what is rented. To fix: own=true (--own)."
            )
        for name in ("cloud", "spot", "reclaim_rate", "usd_per_device_hour"):
            if self.own and getattr(self, name):
                raise ConfigError(
                    f"{name}={getattr(self, name)} is of what is rented, and own=true says that the devices "
                    f"are yours. To fix: leave out {name}, or own."
                )
        if self.start_hour is not None and self.grid_hours is None:
            raise ConfigError(
                f"start_hour={self.start_hour:g} changes nothing without the grid by the hour. To fix: give "
                "grid_hours, a CSV of hour and g_per_kwh."
            )
        if self.reference_batch is not None and self.critical_batch is None:
            raise ConfigError(
                f"reference_batch={self.reference_batch:g} changes nothing without a critical batch size. "
                "To fix: give critical_batch."
            )


class PhaseLength(Fields):
    """How long a phase is: one of these, or nothing where it takes what is left of the total."""

    steps: LongCount | None = None
    epochs: PositiveNumber | None = None
    tokens: LongCount | None = None
    samples: LongCount | None = None
    share: Annotated[float, NUMBER, Meta(gt=0.0, le=1.0)] | None = None
