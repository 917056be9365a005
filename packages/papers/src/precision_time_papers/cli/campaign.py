"""`precision-time papers campaign`: profile training jobs on a Ray cluster, trial after trial."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from precision_time.cli.options import JsonOption, complete_words, numbers_of, words_of
from precision_time.cli.output import message, progress_bar, write_json, write_rows
from precision_time.errors import ConfigError
from precision_time.io import write_atomically
from precision_time.units import duration_s, format_duration
from precision_time_integrations.cli.measure import interrupted, show_report

if TYPE_CHECKING:
    from precision_time_integrations.measure.report import Progress

    from ..campaign.campaign import Campaign
    from ..campaign.result import TrialResult

EXAMPLES = """\b
Examples:
  precision-time papers campaign run campaign.yaml --store points.sqlite
  precision-time papers campaign run --models cnn --ray-workers 1,2 --fractions 0.25,1 --time-budget 10m
  precision-time papers campaign run campaign.yaml --ray 10.0.0.1:6379
  precision-time papers campaign show points.sqlite
  precision-time papers campaign export points.sqlite --out points.csv
"""
STORE = Path("campaign.sqlite")

StoreArgument = Annotated[
    Path, typer.Argument(metavar="STORE", help="Store of a campaign, or its CSV.", show_default=False)
]


def run(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Campaign file (YAML); or give options.")
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
        str,
        typer.Option("--data", help="synthetic, generated-images, digits, or the folder of an ImageFolder."),
    ] = "synthetic",
    samples: Annotated[
        int | None, typer.Option("--samples", help="Samples of the whole synthetic dataset.")
    ] = None,
    fractions: Annotated[str, typer.Option("--fractions", help="Shares of the dataset, 0 to 1.")] = "1",
    workers: Annotated[str, typer.Option("--ray-workers", help="Numbers of workers.")] = "1",
    cpus: Annotated[str, typer.Option("--cpus-per-worker", help="CPUs per worker.")] = "1",
    gpus: Annotated[str, typer.Option("--gpus-per-worker", help="GPUs per worker.")] = "0",
    nodes: Annotated[str, typer.Option("--ray-nodes", help="Ray nodes the workers are placed on.")] = "1",
    batch_sizes: Annotated[str, typer.Option("--batch-sizes", "-b", help="Samples per worker.")] = "32",
    precisions: Annotated[
        str, typer.Option("--precisions", "-p", help="fp32, bf16-mixed; on GPUs tf32, fp16-mixed.")
    ] = "fp32",
    epochs: Annotated[int, typer.Option("--epochs", help="Epochs of a trial, at most.")] = 1,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="Timed seconds of a trial, at most; about.")
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", help="How often each trial is measured.")] = 1,
    time_limit: Annotated[
        float, typer.Option("--time-limit", help="Seconds after which a trial is given up.")
    ] = 120.0,
    oversubscribe: Annotated[
        bool, typer.Option("--oversubscribe", help="Let a local Ray offer more CPUs than there are.")
    ] = False,
    address: Annotated[
        str | None,
        typer.Option("--ray", help="Of a Ray cluster (host:port, auto). Default: a Ray on this machine."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--time-budget", metavar="TIME", help="Such as 10m: the most informative trials that fit into it."
        ),
    ] = None,
    store: Annotated[
        Path, typer.Option("--store", dir_okay=False, help="File that results are added to.")
    ] = STORE,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Measure trials again that failed before.")
    ] = False,
    list_trials: Annotated[
        bool, typer.Option("--list", help="Only show what would be measured; starts no Ray.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Measure the trials that the store does not hold yet.

    Each trial is real training on Ray Train. Results are stored at once: an interrupted campaign goes on
    where it stopped. The exit code is 1 when trials failed and none could be measured.
    """
    from ..campaign.campaign import campaign_of, load_campaign

    if (file is None) == (models is None):
        raise ConfigError("A campaign is a FILE or --models. To fix: give one of them.")
    if file is not None:
        campaign = load_campaign(file)
    else:
        sweep = {
            "models": words_of(models),
            "data": _data(data, samples),
            "fractions": numbers_of("--fractions", fractions),
            "workers": numbers_of("--ray-workers", workers),
            "cpus_per_worker": numbers_of("--cpus-per-worker", cpus),
            "gpus_per_worker": numbers_of("--gpus-per-worker", gpus),
            "nodes": numbers_of("--ray-nodes", nodes),
            "batch_sizes": numbers_of("--batch-sizes", batch_sizes),
            "precisions": words_of(precisions),
        }
        common = {"repeats": repeats, "epochs": epochs, "seconds": seconds, "time_limit": time_limit}
        campaign = campaign_of({**common, "oversubscribe": oversubscribe, "sweeps": [sweep]})
    if list_trials:
        _list(campaign, json_output)
        return
    _run(
        campaign,
        store,
        address,
        None if budget is None else duration_s("--time-budget", budget),
        retry_failed,
        json_output,
    )


def _run(
    campaign: Campaign,
    store: Path,
    address: str | None,
    budget_s: float | None,
    retry_failed: bool,
    json_output: bool,
) -> None:
    from precision_time.corpus.own import STEPS

    from ..campaign.campaign_steps import describe_workers, write_steps
    from ..campaign.ray import run_campaign

    try:
        with progress_bar("starting workers", lines=True) as update:

            def show_progress(now: Progress) -> None:
                update(now.done, now.total, now.trial, f"{format_duration(now.left_s or 0.0)} left")

            report = run_campaign(
                campaign,
                store,
                address=address,
                budget_s=budget_s,
                retry_failed=retry_failed,
                progress=show_progress,
            )
    except KeyboardInterrupt:
        interrupted(store)
    if report.measured:
        describe_workers(store)
        write_steps(store, store.with_suffix(STEPS))
    if json_output:
        write_json(report.to_dict())
    else:
        counts = {
            "measured": len(report.measured),
            "already stored": report.skipped,
            "failed": len(report.failed),
            "left for want of time": report.left,
            "time": format_duration(report.seconds),
        }
        show_report(f"{campaign.name}: {len(campaign.trials)} trials", counts, report)
        message(
            f"Wrote {store} and {store.with_suffix(STEPS).name} beside it"
            if report.measured
            else f"Wrote {store}"
        )
    if report.failed and not report.measured:
        first = " ".join(next(iter(report.failed.values())).split())
        message(f"Error: No trial could be measured, {len(report.failed)} failed; the first: {first}")
        raise typer.Exit(1)


def _list(campaign: Campaign, json_output: bool) -> None:
    if json_output:
        write_json({"campaign": campaign.name, "points": [str(trial) for trial in campaign.trials]})
        return
    rows = [(str(trial), str(trial.steps_per_epoch * trial.epochs)) for trial in campaign.trials]
    write_rows(f"{len(rows)} trials of {campaign.name}", ("trial", ">steps"), rows)


def show(store: StoreArgument, *, json_output: JsonOption = False) -> None:
    """Show the results in a store."""
    from ..campaign.store import read_store

    results = read_store(store)
    if json_output:
        write_json({"store": str(store), "points": [result.to_dict() for result in results]})
        return
    write_rows(
        f"{store}: {len(results)} trials, {sum(result.status != 'ok' for result in results)} failed",
        ("trial", ">steps", ">step", ">sd %", ">grad wait", ">epoch", ">samples/s", "remarks"),
        [_cells(result) for result in results],
    )


def _cells(result: TrialResult) -> tuple[str, ...]:
    name = f"{result.key}#{result.repeat}"
    if result.status != "ok":
        return (name, "", "", "", "", "", "", f"failed: {result.error}")
    step_s, sd_s = result.step_time_s, result.step_time_sd_s
    return (
        name,
        str(result.num_steps or ""),
        _time(step_s),
        f"{100 * sd_s / step_s:.0f}" if sd_s is not None and step_s else "",
        _time(result.gradient_wait_s),
        _time(result.epoch_time_s),
        f"{result.samples_per_s:.4g}" if result.samples_per_s else "",
        result.label,
    )


def _time(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(seconds)


def export(
    store: StoreArgument,
    *,
    csv: Annotated[Path, typer.Option("--out", "-o", dir_okay=False, help="CSV file to write.")],
    corpus: Annotated[
        bool,
        typer.Option("--corpus", help="Rows of docs/reference/corpus.md instead of trials."),
    ] = False,
    device_file: Annotated[
        Path | None,
        typer.Option(
            "--device-file",
            dir_okay=False,
            help="With --corpus: the workers' processors, as measure --cpu --out wrote them. Default: what "
            "the campaign wrote beside its store.",
        ),
    ] = None,
    source: Annotated[
        str, typer.Option("--source", help="With --corpus: what the rows give as their source.")
    ] = "own-ray",
    json_output: JsonOption = False,
) -> None:
    """Write the results of a store to a CSV file."""
    from io import StringIO

    from ..campaign.campaign_steps import unknown_devices, write_steps
    from ..campaign.result import write_results
    from ..campaign.store import read_store

    left_out: dict[str, int] = {}
    unknown: dict[str, int] = {}
    results = read_store(store)
    if corpus:
        count, left_out = write_steps(store, csv, source=source, devices=device_file)
        unknown = unknown_devices(csv)
    else:
        file = StringIO()
        count = write_results(results, file)
        write_atomically(csv, file.getvalue())
    if json_output:
        answer = {"csv": str(csv), "rows": count, "points": len(results)}
        write_json(
            {**answer, "left_out": dict(left_out), "unknown_devices": dict(unknown)} if corpus else answer
        )
    else:
        message(f"Wrote {count} rows of {len(results)} trials to {csv}")
        for reason, number in left_out.items():
            message(f"Left out {number}: {reason}")
        for name, number in unknown.items():
            message(
                f"{number} rows name {name}, which no catalog has. To fix: on such a worker run "
                f"precision-time measure --cpu -d {name} --out cpu.toml, and give --device-file cpu.toml."
            )


def _data(name: str, samples: int | None) -> dict[str, Any]:
    if name in ("synthetic", "generated-images", "digits"):
        return {"name": name, "samples": samples}
    return {"name": "imagefolder", "path": name, "samples": samples}
