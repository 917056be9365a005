"""What can be said of a whole run beside its request: options (`run` in a job file), lengths of phases."""

# No annotation is text here: what is evaluated when the class is made need not be parsed again.
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from ...errors import ConfigError
from ...fields import FILE, NUMBER, BatchSize, Count, LongCount, Option, PositiveNumber, Read
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

    start_up: Annotated[
        Overhead | None,
        Option(
            help="From the start of the job to the first step, without compilation.",
            metavar="DURATION",
            default="one minute, and 3 s per 1000 devices",
        ),
    ] = None
    compile_time: Annotated[
        Overhead | None,
        Option(help="Compilation of the step.", metavar="DURATION", default="usual for --compiler"),
    ] = None
    warm_up_steps: Annotated[
        float | None,
        NUMBER,
        Meta(ge=0.0, le=1e6),
        Option(help="Steps by which the first ones take longer, in sum.", default="5"),
    ] = None
    evaluation_every: Annotated[
        Count | None, Option(help="Steps between evaluations.", default="no evaluation")
    ] = None
    evaluation_samples: Annotated[LongCount | None, Option(help="Samples of one evaluation.")] = None
    checkpoint_interval: Annotated[
        Duration | None,
        Option(
            help="Time between checkpoints.",
            metavar="DURATION",
            default="what costs least (Young and Daly)",
        ),
    ] = None
    checkpoint_steps: Annotated[Count | None, Option(help="Steps between checkpoints instead.")] = None
    checkpoint_bytes: Annotated[
        PositiveNumber | None,
        Option(help="Size of a checkpoint.", default="weights and optimizer states"),
    ] = None
    async_checkpoints: Annotated[
        bool | None, Option(help="Steps go on while a checkpoint is written.", default="no")
    ] = None
    storage_rate: Annotated[
        PositiveNumber | None,
        Option(help="What the storage takes and gives, over all hosts [GB/s].", default="1.2 for each host"),
    ] = None
    mtbf: Annotated[
        Duration | None,
        Option(
            help="Mean time between failures of one device that end the job, such as 50000h.",
            metavar="DURATION",
            default="mean of published runs, 34500h",
        ),
    ] = None
    failures: Annotated[bool | None, Option(help="Count failures and restarts.", default="yes")] = None
    recovery: Annotated[
        Overhead | None,
        Option(help="From a failure to the restart on healthy hosts.", metavar="DURATION", default="10m"),
    ] = None
    spot: Annotated[
        bool | None, Option(help="Hosts are spot instances, which can be reclaimed.", default="no")
    ] = None
    reclaim_rate: Annotated[
        Rate | None, Option(help="Reclaims per spot host and hour.", default="0.1 with --spot")
    ] = None
    region: Annotated[
        str | None,
        Option(
            help="Where it runs, for prices and carbon: aws:us-east-1, a country or a grid.",
            metavar="PLACE",
            default="the cheapest known offer, no carbon",
        ),
    ] = None
    cloud: Annotated[
        str | None,
        Option(
            help="Cloud to rent from, or several by commas: the cheapest of them.",
            default="the cheapest known",
        ),
    ] = None
    usd_per_device_hour: Annotated[
        PositiveNumber | None, Option(help="Your price of a device-hour [USD].", default="list prices")
    ] = None
    own: Annotated[
        bool | None,
        Option(help="The devices are yours: electricity in the place of rent.", default="rented"),
    ] = None
    kwh_price: Annotated[
        PositiveNumber | None, Option(help="What a kWh costs you, with --own [USD].", default="no cost")
    ] = None
    pue: Annotated[
        PositiveNumber | None,
        Option(help="Power usage effectiveness of the data center.", default="that of the cloud, or 1.56"),
    ] = None
    power: Annotated[
        PositiveNumber | None,
        Option(
            help="Measured mean power of one device while it trains [W].", default="by the device and step"
        ),
    ] = None
    grid_hours: Annotated[
        Path | None,
        FILE,
        Option(
            help="CSV of hour and g_per_kwh: what the grid emits by the hour, from midnight on.",
            metavar="FILE",
            default="the yearly mean of --region",
        ),
    ] = None
    start_hour: Annotated[
        float | None,
        NUMBER,
        Meta(ge=0.0, le=1e6),
        Option(help="Hour of --grid-hours in which the run begins.", default="0"),
    ] = None
    embodied_g_per_device_hour: Annotated[
        PositiveNumber | None,
        Option(help="CO2 of making the hardware, for each hour of a device [g].", default="not counted"),
    ] = None
    critical_batch: Annotated[
        BatchSize | None,
        Option(
            help="Critical batch size [samples]: the length given is of --reference-batch, and other batches "
            "take more steps or samples to the same loss (McCandlish et al. 2018).",
            default="the length does not depend on the batch",
        ),
    ] = None
    reference_batch: Annotated[
        BatchSize | None,
        Option(help="Batch for which the length of the run is given.", default="that of the run"),
    ] = None

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
