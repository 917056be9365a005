"""`precision-time sweep`: a grid or a table of jobs of any size, answered into a file."""

from __future__ import annotations

import time
from pathlib import Path

import typer

from ..units import format_duration
from .options import NOTHING_FITS, JsonOption, RayOption, declared
from .output import message, progress_bar, write_json

_SHOWN_REASONS = 5


@declared("sweep")
def sweep(
    grid: Path,
    *,
    out: Path,
    ray: RayOption = None,
    workers: int | None = None,
    restart: bool = False,
    json_output: JsonOption = False,
) -> None:
    """Predict a grid of jobs of any size into a file.

    Every field takes a list or a range, and every combination is a row: numbers of devices, then batches vary
    fastest. A combination that cannot be has its reason in the column `error`. Memory stays the same however
    long the grid is. A sweep that was ended, even by a kill, goes on when the same command is given again.

    Exits with 2 where no row has an answer, with 3 where no job fits in memory.
    """
    from ..predict.sweep import check_sweep_path, write_sweep
    from ..request.grid import grid_of_file

    check_sweep_path(out)
    asked = grid_of_file(grid)
    with progress_bar(f"rows of {asked.name}", lines=True) as show:
        left = _Remaining()
        try:
            swept = write_sweep(
                asked,
                out,
                ray=ray,
                workers=workers,
                restart=restart,
                progress=lambda done, total: show(done, total, "", left.words(done, total)),
            )
        except KeyboardInterrupt:
            message(f"The rows so far are kept in {out}.part: the same command goes on behind them.")
            raise
    counts = swept.counts
    if json_output:
        write_json({"path": str(out), "rows": counts.rows, "refused": counts.refused, "unfit": counts.unfit,
                    "kept": swept.kept, "reasons": counts.reasons})  # fmt: skip
    else:
        kept = f" ({swept.kept:,} of them before it was ended)" if swept.kept else ""
        left_out = f"{counts.unfit:,} do not fit, {counts.refused:,} have no answer"
        message(f"Wrote {counts.rows:,} rows to {out}{kept}: {left_out}.")
        for reason, count in [*counts.reasons.items()][:_SHOWN_REASONS]:
            message(f"{count:,} x {reason}")
    if counts.refused == counts.rows:
        raise typer.Exit(2)
    if counts.refused + counts.unfit == counts.rows:
        raise typer.Exit(NOTHING_FITS)


class _Remaining:
    """The time left, from the rows answered since the first report."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()
        self._kept: int | None = None

    def words(self, done: int, total: int) -> str:
        """Such as "about 2 min left"; nothing before a row was answered."""
        kept = self._kept = done if self._kept is None else self._kept
        if done == kept:
            return ""
        seconds = (time.monotonic() - self._start_s) / (done - kept) * (total - done)
        return f"about {format_duration(seconds)} left"
