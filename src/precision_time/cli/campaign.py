"""`precision-time campaign`: profile training jobs on a Ray cluster, point after point."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from ..io import write_atomically
from ..units import format_duration
from .options import JsonOption, complete_words
from .output import counted_progress, message, write_json, write_rows

if TYPE_CHECKING:
    from ..measure.campaign.plan import Campaign
    from ..measure.campaign.point import FinishedPoint
    from ..measure.campaign.run import CampaignReport, Progress

EXAMPLES = """\b
Examples:
  precision-time campaign run campaign.yaml --store points.sqlite
  precision-time campaign run --models cnn,transformer --workers 1,2 --fractions 0.25,0.5,1 --budget 10m
  precision-time campaign run campaign.yaml --address 10.0.0.1:6379
  precision-time campaign show points.sqlite
  precision-time campaign export points.sqlite --csv points.csv
"""
STORE = Path("campaign.sqlite")
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(s|m|min|h)?")
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SHOWN_FAILURES = 10
_INTERRUPTED = 130
"""Exit code of a shell command that was ended by Ctrl-C."""

app = typer.Typer(
    name="campaign",
    help="Profile training jobs on a Ray cluster.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=EXAMPLES,
)

StoreArgument = Annotated[
    Path, typer.Argument(metavar="STORE", help="Store of a campaign, or its CSV.", show_default=False)
]


@app.command(epilog=EXAMPLES)
def run(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Campaign file (YAML); or say it by flags.")
    ] = None,
    *,
    models: Annotated[
        str | None,
        typer.Option(
            "--models",
            metavar="NAME,...",
            help="cnn, mlp, transformer, recommender; zoo, timm or Hugging Face names; module:function.",
            autocompletion=complete_words("cnn", "mlp", "transformer", "recommender"),
        ),
    ] = None,
    data: Annotated[
        str, typer.Option("--data", help="synthetic, digits, or the folder of an ImageFolder.")
    ] = "synthetic",
    samples: Annotated[int | None, typer.Option("--samples", help="Of synthetic data, the whole.")] = None,
    fractions: Annotated[str, typer.Option("--fractions", help="Shares of the data set, 0 to 1.")] = "1",
    workers: Annotated[str, typer.Option("--workers", help="Numbers of workers.")] = "1",
    cpus: Annotated[str, typer.Option("--cpus", help="CPUs per worker.")] = "1",
    gpus: Annotated[str, typer.Option("--gpus", help="GPUs per worker.")] = "0",
    nodes: Annotated[str, typer.Option("--nodes", help="Ray nodes the workers are spread over.")] = "1",
    batch_sizes: Annotated[str, typer.Option("--batch-sizes", "-b", help="Samples per worker.")] = "32",
    precisions: Annotated[
        str, typer.Option("--precisions", "-p", help="fp32, bf16-mixed; on GPUs tf32, fp16-mixed.")
    ] = "fp32",
    epochs: Annotated[int, typer.Option("--epochs", help="Epochs of a point, at most.")] = 1,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="Timed seconds of a point, at most; about.")
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", help="How often each point is measured.")] = 1,
    time_limit: Annotated[
        float, typer.Option("--time-limit", help="Seconds after which a point is given up.")
    ] = 120.0,
    oversubscribe: Annotated[
        bool, typer.Option("--oversubscribe", help="Let a local Ray offer more CPUs than there are.")
    ] = False,
    address: Annotated[
        str | None,
        typer.Option("--address", help="Of a Ray cluster (host:port, auto). Default: one of its own, here."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget", metavar="TIME", help="Such as 10m: the most informative points that fit into it."
        ),
    ] = None,
    store: Annotated[
        Path, typer.Option("--store", dir_okay=False, help="File that finished points are added to.")
    ] = STORE,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Measure points again that failed before.")
    ] = False,
    list_points: Annotated[
        bool, typer.Option("--list", help="Only show what would be measured; starts no Ray.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Measure the points that the store does not hold yet.

    Each point is real training on Ray Train. Finished points are stored at once: an interrupted campaign
    goes on where it stopped.
    """
    from ..measure.campaign.schema import campaign_of, load_campaign

    if (file is None) == (models is None):
        raise ConfigError("A campaign is a FILE or --models. To fix: give one of them.")
    if file is not None:
        campaign = load_campaign(file)
    else:
        sweep = {
            "models": _words(models or ""),
            "data": _data(data, samples),
            "fractions": _numbers("--fractions", fractions),
            "workers": _numbers("--workers", workers),
            "cpus_per_worker": _numbers("--cpus", cpus),
            "gpus_per_worker": _numbers("--gpus", gpus),
            "nodes": _numbers("--nodes", nodes),
            "batch_sizes": _numbers("--batch-sizes", batch_sizes),
            "precisions": _words(precisions),
        }
        common = {"repeats": repeats, "epochs": epochs, "seconds": seconds, "time_limit": time_limit}
        campaign = campaign_of({**common, "oversubscribe": oversubscribe, "sweeps": [sweep]})
    if list_points:
        _list(campaign, json_output)
        return
    _run(campaign, store, address, _seconds(budget), retry_failed, json_output)


def _run(
    campaign: Campaign,
    store: Path,
    address: str | None,
    budget_s: float | None,
    retry_failed: bool,
    json_output: bool,
) -> None:
    from ..measure.campaign.run import run_campaign

    try:
        with counted_progress(waiting="starting workers", left=_left) as tell:
            report = run_campaign(
                campaign, store, address=address, budget_s=budget_s, retry_failed=retry_failed, tell=tell
            )
    except KeyboardInterrupt:
        message(f"Interrupted; what was measured is in {store}. The same command goes on from there.")
        raise typer.Exit(_INTERRUPTED) from None
    if json_output:
        write_json(report.to_dict())
    else:
        _show_report(report)


def _list(campaign: Campaign, json_output: bool) -> None:
    if json_output:
        write_json({"campaign": campaign.name, "points": [str(point) for point in campaign.points]})
        return
    rows = [(str(point), str(point.steps_per_epoch * point.epochs)) for point in campaign.points]
    write_rows(f"{len(rows)} points of {campaign.name}", ("point", ">steps"), rows)


def _show_report(report: CampaignReport) -> None:
    counts = [
        ("measured", str(report.measured)),
        ("already there", str(report.skipped)),
        ("failed", str(len(report.failed))),
        ("left for want of time", str(report.left)),
        ("time", format_duration(report.seconds)),
    ]
    write_rows(f"{report.campaign}: {report.points} points", ("points", ">count"), counts)
    if report.failed:
        typer.echo()
        rows = list(report.failed.items())[:_SHOWN_FAILURES]
        write_rows(f"Failed: {len(report.failed)}", ("point", "reason"), rows)
    message(f"Wrote {report.store}")


@app.command(epilog=EXAMPLES)
def show(store: StoreArgument, *, json_output: JsonOption = False) -> None:
    """Show the points of a store."""
    from ..measure.campaign.store import read_store

    points = read_store(store)
    if json_output:
        write_json({"store": str(store), "points": [point.to_dict() for point in points]})
        return
    write_rows(
        f"{store}: {len(points)} points, {sum(point.status != 'ok' for point in points)} failed",
        ("point", ">steps", ">step", ">sd %", ">grad wait", ">epoch", ">samples/s", "remarks"),
        [_cells(point) for point in points],
    )


def _cells(point: FinishedPoint) -> tuple[str, ...]:
    name = f"{point.key}#{point.repeat}"
    if point.status != "ok":
        return (name, "", "", "", "", "", "", f"failed: {point.error}")
    step_s, sd_s = point.step_time_s, point.step_time_sd_s
    return (
        name,
        str(point.num_steps or ""),
        _time(step_s),
        f"{100 * sd_s / step_s:.0f}" if sd_s is not None and step_s else "",
        _time(point.gradient_wait_s),
        _time(point.epoch_time_s),
        f"{point.samples_per_s:.4g}" if point.samples_per_s else "",
        point.label,
    )


def _time(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(seconds)


@app.command(epilog=EXAMPLES)
def export(
    store: StoreArgument,
    *,
    csv: Annotated[Path, typer.Option("--csv", dir_okay=False, help="File to write.")],
    corpus: Annotated[
        bool,
        typer.Option(
            "--corpus", help="Rows of a measurement file (docs/reference/corpus.md) instead of points."
        ),
    ] = False,
    source: Annotated[
        str, typer.Option("--source", help="With --corpus: what the rows give as their source.")
    ] = "own-ray",
    json_output: JsonOption = False,
) -> None:
    """Write the points of a store to a CSV file."""
    from io import StringIO

    from ..measure.campaign.point import write_points
    from ..measure.campaign.rows import corpus_csv
    from ..measure.campaign.store import read_store

    points = read_store(store)
    if corpus:
        text, count = corpus_csv(points, source=source)
    else:
        file = StringIO()
        count = write_points(points, file)
        text = file.getvalue()
    write_atomically(csv, text)
    if json_output:
        write_json({"csv": str(csv), "rows": count, "points": len(points)})
    else:
        message(f"Wrote {count} rows of {len(points)} points to {csv}")


def _words(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip())]


def _numbers(option: str, text: str) -> list[float]:
    try:
        numbers = [float(word) for word in _words(text)]
    except ValueError:
        raise ConfigError(f"{option} {text!r} is no list of numbers. To fix: write it like 1,2,4.") from None
    return [int(number) if number.is_integer() else number for number in numbers]


def _data(name: str, samples: int | None) -> dict[str, Any]:
    if name in ("synthetic", "digits"):
        return {"name": name, "samples": samples}
    return {"name": "imagefolder", "path": name, "samples": samples}


def _seconds(text: str | None) -> float | None:
    """Seconds of "10m", "90s", "1.5h" or "600"."""
    if text is None:
        return None
    match = _DURATION.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise ConfigError(f"--budget {text!r} is no time. To fix: write it like 90s, 10m or 1.5h.")
    return float(match[1]) * _UNITS[match[2] or "s"]


def _left(now: Progress) -> str:
    return f"{format_duration(now.left_s)} left"
