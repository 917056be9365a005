"""`precision-time measure`: time kernels and whole training steps on this machine's device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from precision_time.cli.options import JsonOption, numbers_of, words_of
from precision_time.cli.output import message, progress_bar, write_json, write_rows
from precision_time.cli.request_options import request_options, sizes_of
from precision_time.errors import ConfigError
from precision_time.units import GIBI, GIGA

if TYPE_CHECKING:
    from precision_time.workload.graph import OpGraph

    from ..measure.device import MeasuredDevice
    from ..measure.launchers.local import Measure
    from ..measure.plan import MeasurePlan
    from ..measure.report import TrialReport
    from ..measure.trial import LocalTrial, ModelSpec

EXAMPLES = """\b
Examples:
  precision-time measure --list
  precision-time measure --only all --out measured --time-budget 540
  precision-time measure --only steps --models resnet50,gpt2 --precisions fp32,bf16-mixed
  precision-time measure my.py:build -b 8,32
  precision-time measure my.py:build --input ids:int64[B,128] -p fp32,bf16-mixed
  precision-time measure llama3-8b -b 1 -p bf16-mixed --project-to 64
  precision-time measure --cpu --out cpu.toml
"""

FOLDER = Path("measured")
_SHOWN_FAILURES = 10
_INTERRUPTED = 130
"""Exit code of a shell command that was ended by Ctrl-C."""


@request_options(
    only=("batch_size", "seq_len", "image_size", "sizes", "inputs", "forward", "loss", "optimizer"),
    shown=("batch_size",),
    several=True,
)
def measure(
    model: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            help="Only steps of these: your own (net.py:function, package.module:function; the file is run), "
            "those of the plan, or timm's. Without any: the plan.",
        ),
    ] = None,
    *,
    what: Annotated[str, typer.Option("--only", help="ops or steps; all when left out.")] = "all",
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Folder for the CSV files; what they hold is kept. With --cpu: file for the device.",
            show_default=False,
        ),
    ] = FOLDER,
    cpu: Annotated[
        bool,
        typer.Option(
            "--cpu", help="Only this processor, as this process may use it, as a device for --custom."
        ),
    ] = False,
    precisions: Annotated[
        str | None, typer.Option("--precisions", "-p", metavar="NAME,...", help="Only these precisions.")
    ] = None,
    models: Annotated[
        str | None,
        typer.Option("--models", metavar="NAME,...", help="Steps: only these models; the same as MODEL."),
    ] = None,
    ops: Annotated[
        str | None, typer.Option("--ops", metavar="NAME,...", help="Operators: only these.")
    ] = None,
    plan: Annotated[
        str | None, typer.Option("--plan", help="cuda, cpu or a TOML file. Default: as the device is.")
    ] = None,
    seconds_per_point: Annotated[
        float | None,
        typer.Option("--seconds-per-point", min=0.001, help="Timed seconds per trial. Default: the plan's."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--time-budget", min=1.0, help="Seconds for the whole run; no trial is started that passes it."
        ),
    ] = None,
    on: Annotated[str, typer.Option("--on", help="auto (a GPU where there is one), cuda or cpu.")] = "auto",
    device: Annotated[
        str | None, typer.Option("--device", "-d", help="Name for the rows instead of the driver's.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Measure trials again that failed before.")
    ] = False,
    graphs: Annotated[
        bool, typer.Option("--graphs/--no-graphs", help="Operators: replay CUDA graphs, kernels alone.")
    ] = True,
    list_trials: Annotated[
        bool, typer.Option("--list", help="Only show what would be measured; needs no torch with --plan.")
    ] = False,
    project_to: Annotated[
        int | None,
        typer.Option(
            "--project-to",
            metavar="DEVICES",
            min=1,
            help="Then say what the first of the measured steps takes on so many devices.",
        ),
    ] = None,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """Time kernels and training steps on this device.

    Every result is stored at once: an interrupted run goes on where it stopped. Of a MODEL of your own, --set
    says batch_size, seq_len, image_size, sizes, inputs, forward, loss and optimizer.
    """
    from ..measure.device import find_device
    from ..measure.launchers.local import measurer
    from ..measure.plan import load_plan, select

    if cpu:
        _measure_processor(None if out == FOLDER else out, device, json_output)
        return
    found = None if list_trials and plan else find_device(kind=on, name=device)
    chosen = load_plan(plan or (found.kind if found else "cuda"))
    named = [*(model or ()), *words_of(models)]
    asked = {
        "inputs": tuple(fields.get("inputs") or ()),
        **{name: _count(name, fields.get(name)) for name in ("seq_len", "image_size")},
        "sizes": sizes_of(fields.get("sizes") or ()),
        **{name: fields.get(name) for name in ("forward", "loss")},
    }
    specs, operators = _own_models(named, asked, fields.get("optimizer"))
    trials = select(
        chosen,
        what="steps" if model else what,
        precisions=words_of(precisions),
        models=named,
        ops=words_of(ops),
        specs=specs,
        batch_sizes=[int(number) for number in numbers_of("--batch-size", fields.get("batch_size") or "")],
    )
    if list_trials or found is None:
        _list(chosen, trials, json_output)
        return
    report, hardware = _run(
        *(trials, found, out, operators),
        measure=measurer(chosen, found, seconds=seconds_per_point, graphs=graphs),
        budget_s=budget,
        retry_failed=retry_failed,
    )
    from precision_time.predict.api import predict
    from precision_time.request.request import Request

    question = None
    if report.to_dict()["measured_steps"] or report.skipped:
        question = _question(trials, specs, found.name, out / f"{found.source}.csv", asked)
    projected = None
    if question is not None and project_to is not None:
        projected = predict(Request.of({**question, "gpus": project_to}))
    if json_output:
        write_json(report.to_dict() | ({"projected": projected.to_dict()} if projected else {}))
        return
    _say(report, found, hardware)
    if question is not None:
        message(f"To ask with it: {_command(question)}")
    if projected is not None:
        typer.echo(str(projected))


def _count(name: str, text: str | None) -> int | None:
    """A number as a request reads it."""
    from precision_time.request.schema import RequestFields

    return None if text is None else int(RequestFields.model_fields[name].read(text, as_text=True))


def _own_models(
    named: Sequence[str], asked: Mapping[str, Any], optimizer: str | None
) -> tuple[dict[str, ModelSpec], dict[str, OpGraph]]:
    """The user's own models among those named, as they are measured, and their operators."""
    from ..measure.plan import is_own

    own = [name for name in named if is_own(name)]
    if not own and any((*asked.values(), optimizer)):
        raise ConfigError(
            "Inputs, sizes, forward, loss and optimizer are of a model of your own. To fix: name one, such "
            "as precision-time measure my.py:build."
        )
    specs: dict[str, ModelSpec] = {}
    operators: dict[str, OpGraph] = {}
    if own:
        from ..measure.own import own_spec

        for name in own:
            specs[name], graph = own_spec(name, optimizer=optimizer or "", **asked)
            operators[graph.name] = graph
    return specs, operators


def _run(
    trials: Sequence[LocalTrial],
    found: MeasuredDevice,
    out: Path,
    operators: Mapping[str, OpGraph],
    *,
    measure: Measure,
    budget_s: float | None,
    retry_failed: bool,
) -> tuple[TrialReport, Path | None]:
    """Measure the trials into a folder. Returns the report and the description of the device, if any."""
    from precision_time.corpus.own import write_graphs

    from ..measure.describe import describe
    from ..measure.launchers.local import run_trials

    if out.is_file():
        raise ConfigError(f"--out {out} is a file. To fix: name a folder for the CSV files.")
    steps = out / f"{found.source}.csv"
    out.mkdir(parents=True, exist_ok=True)
    hardware = describe(found, steps)
    write_graphs(steps, operators)
    message(f"{found.name}: {found.software}")
    try:
        with progress_bar(lines=True) as update:
            report = run_trials(
                trials,
                found,
                out=out,
                measure=measure,
                budget_s=budget_s,
                retry_failed=retry_failed,
                progress=lambda now: update(now.done, now.total, now.trial),
            )
    except KeyboardInterrupt:
        interrupted(out)
    return report, hardware


def _measure_processor(out: Path | None, name: str | None, json_output: bool) -> None:
    """Time this processor, show what it reaches, and add it to a file of devices where one is named."""
    from ..measure.describe import add_device
    from ..measure.processor import measure_processor

    if out is not None and (out.suffix.lower() != ".toml" or not out.absolute().parent.is_dir()):
        raise ConfigError(
            f"--out {out}: with --cpu it is a TOML file in a folder that exists. To fix: name one, such as "
            "cpu.toml."
        )
    with progress_bar(lines=True) as update:
        figures = measure_processor(name=name or "", told=update)
    if out is not None:
        add_device(out, figures.name, figures.entry())
    if json_output:
        write_json(figures.to_dict())
        return
    slow = {word: f"emulated: {share:.2g} of fp32" for word, share in figures.emulated.items()}
    rows = [
        (f"{word} products", f"{rate / GIGA:,.1f} Gop/s", slow.get(word, ""))
        for word, rate in figures.flops_per_s.items()
    ]
    rows += [
        ("memory", f"{figures.memory_bytes_per_s / GIGA:.1f} GB/s", f"{figures.memory_bytes / GIBI:.1f} GiB"),
        ("an operator", f"{figures.operator_s * 1e6:.1f} us", "eager, next to no work"),
        ("cores", f"{figures.cores:g}", figures.software),
    ]
    write_rows(figures.name, ("what", ">figure", "remark"), rows)
    if out is not None:
        message(f"To ask with it: precision-time predict resnet18 -d {figures.name} --custom {out}")


def _say(report: TrialReport, found: MeasuredDevice, hardware: Path | None) -> None:
    """What was measured and where it was written."""
    answer = report.to_dict()
    counts = {
        "steps measured": answer["measured_steps"],
        "operators measured": answer["measured_ops"],
        "already stored": report.skipped,
        "failed": len(report.failed),
        "no hardware or library for": sum(report.refused.values()),
        "left for want of time": report.left,
        "seconds": f"{report.seconds:.0f}",
    }
    show_report(f"{answer['source']} on {answer['device']}", counts, report)
    message(f"Wrote {', '.join(answer['files'].values())}")
    if hardware is not None:
        message(f"{hardware} describes {found.name} as it was measured, which no catalog does.")


def _question(
    trials: Sequence[LocalTrial],
    specs: Mapping[str, ModelSpec],
    device: str,
    steps: Path,
    asked: Mapping[str, Any],
) -> dict[str, Any] | None:
    """The fields of a request for the first of the measured steps; None where there are operators alone."""
    from ..measure.trial import StepTrial

    first = next((trial for trial in trials if isinstance(trial, StepTrial)), None)
    if first is None:
        return None
    found = {
        "model": next((name for name, spec in specs.items() if spec is first.model), first.model.name),
        "device": device,
        "batch_size": first.batch_size,
        **asked,
        "precision": first.precision,
        "stack": "pytorch-compiled" if first.compiled else "pytorch-eager",
        "calibration": str(steps),
    }
    return {name: value for name, value in found.items() if value}


def _command(question: Mapping[str, Any]) -> str:
    """The same as a command."""
    flags = {"device": "-d", "batch_size": "-b", "precision": "-p", "inputs": "--input", "sizes": "--size"}
    words = ["precision-time predict", question["model"]]
    for name, value in question.items():
        several = [f"{key}={item}" for key, item in value.items()] if isinstance(value, Mapping) else value
        for item in several if isinstance(several, list | tuple) else [several]:
            words += [flags.get(name, "--" + name.replace("_", "-")), str(item)] if name != "model" else []
    return " ".join(words)


def interrupted(where: Path) -> NoReturn:
    """End a command that was interrupted by Ctrl-C, in one line."""
    message(f"Interrupted; what was measured is in {where}. The same command goes on from there.")
    raise typer.Exit(_INTERRUPTED) from None


def _list(plan: MeasurePlan, trials: Sequence[LocalTrial], json_output: bool) -> None:
    from ..measure.trial import KernelTrial

    if json_output:
        write_json({"plan": plan.name, "points": [trial.key for trial in trials]})
        return
    rows = [
        ("op" if isinstance(trial, KernelTrial) else "step", str(trial.rank), trial.precision, str(trial))
        for trial in trials
    ]
    write_rows(f"{len(trials)} trials of the plan {plan.name}", ("what", ">rank", "precision", "trial"), rows)


def show_report(title: str, counts: Mapping[str, object], report: TrialReport) -> None:
    """Write what became of the trials of a run, and why the first of them failed."""
    rows = [(what, str(count)) for what, count in counts.items()]
    write_rows(title, ("trials", ">count"), rows)
    if report.failed:
        typer.echo()
        rows = list(report.failed.items())[:_SHOWN_FAILURES]
        write_rows(f"Failed: {len(report.failed)}", ("trial", "reason"), rows)
