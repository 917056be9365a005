"""Measure the loss that low precision costs, by training small models.

python measure_risk.py --plan full --out risk.csv --table measured_risk.csv
python measure_risk.py --plan my.toml --out risk.csv --budget 600 --json
python measure_risk.py --plan full --out h100.csv --on cuda --native
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from precision_time.cli.options import JsonOption, output_file
from precision_time.cli.output import message, progress_bar, write_json, write_rows
from precision_time.errors import ConfigError, PrecisionTimeError, required_module
from precision_time.io import write_atomically
from precision_time_integrations.measure.store import CsvTable
from risk_study.campaign import COLUMNS, run_campaign
from risk_study.plan import load_risk_plan
from risk_study.summary import MeasuredRisk, summarize, table_text


def measure_risk(
    *,
    plan: Annotated[
        str, typer.Option("--plan", metavar="NAME|FILE", help="full, quick or a TOML file like those.")
    ] = "quick",
    out: Annotated[
        Path, output_file("--out", "-o", text="CSV file of all trainings; those it holds are not repeated.")
    ] = Path("risk.csv"),
    table: Annotated[
        Path | None, output_file("--table", text="Write the gaps to this CSV file as well.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option("--budget", min=1.0, help="No training is started after so many seconds."),
    ] = None,
    on: Annotated[str, typer.Option("--on", help="Device of torch: cpu, cuda.")] = "cpu",
    native: Annotated[
        bool,
        typer.Option("--native", help="Multiply in the device's own 16-bit and fp8 types, not emulated."),
    ] = False,
    source: Annotated[
        str, typer.Option("--source", help="What --table names as the origin of its rows.")
    ] = "packages/papers/studies/measure_risk.py",
    json_output: JsonOption = False,
) -> None:
    """Measure the loss that low precision costs.

    Small models are trained on real data, rounding emulated layer by layer, beside fp32 with the same seed.
    Every training is stored at once: an interrupted campaign goes on where it stopped.
    """
    chosen = load_risk_plan(plan)
    _check_device(on)
    with progress_bar("Training", lines=True, remaining=True) as update:
        done, total = run_campaign(chosen, out, device=on, native=native, budget_s=budget, progress=update)
    rows = summarize(CsvTable(out, COLUMNS).rows(), source)
    if table is not None:
        write_atomically(table, table_text(rows))
        message(f"Wrote {table}")
    if json_output:
        write_json(
            {"trainings": done, "planned": total, "file": str(out), "risks": [_fields(r) for r in rows]}
        )
    else:
        _show(rows)
    if done < total:
        message(f"{done} of {total} trainings are done. To go on, run the same command again.")


def _check_device(name: str) -> None:
    """Refuse a device that torch does not have."""
    torch = required_module(
        "torch", package="torch", extra="precision-time-papers[torch]", purpose="train small models"
    )
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"--on {name}: torch cannot use it ({reason}). The rule: a device of torch, such as cpu or cuda. "
            "To fix: --on cpu."
        ) from error


def _fields(row: MeasuredRisk) -> dict[str, object]:
    """A row for JSON, which has no NaN."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in {**asdict(row), "counts": row.counts}.items()
    }


def _show(rows: tuple[MeasuredRisk, ...]) -> None:
    """The gaps as a table."""
    write_rows(
        "Validation loss against fp32, mean over seeds; * larger than fp32's spread over seeds",
        ("Model", "Layers", "Precision", ">fp32", ">Loss", ">Gap", ">± seeds", ">Diverged", ">To zero"),
        [
            (
                row.model,
                row.layer_group,
                f"{row.precision}/{row.recipe}",
                f"{row.baseline_loss:.4f}",
                f"{row.loss:.4f}",
                f"{row.loss_gap:+.2%}{'*' if row.counts else ''}",
                f"{row.fp32_spread:.2%}",
                f"{row.diverged:.0%}",
                f"{row.underflow_share:.2%}",
            )
            for row in rows
        ],
    )


def main(words: Sequence[str] | None = None) -> None:
    """Run the study; what is wrong with the words is one line."""
    app = typer.Typer(add_completion=False)
    app.command()(measure_risk)
    try:
        app(words)
    except PrecisionTimeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
