"""`precision-time train`: a predictor of the user's own, from the corpus and measured steps."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from ..errors import ConfigError
from .options import JsonOption, RayOption, declared
from .output import message, progress, write_json, write_rows

_SCORES = ("mape_percent", "median_ape_percent", "p90_ape_percent")


@declared("train")
def train(
    *,
    out: Path,
    measurements: list[Path] | None = None,
    device: str | None = None,
    seed: int = 0,
    quick: bool = False,
    workers: int | None = None,
    ray: RayOption = None,
    json_output: JsonOption = False,
) -> None:
    """Fit a predictor of your own.

    It learns from the corpus and your measured steps; the one that ships is left alone. Name its folder with
    --predictor, or in PRECISION_TIME_PREDICTOR. The same rows and seed give the same files. Takes some ten
    minutes.
    """
    from ..corpus.own import read_priced_steps
    from ..executor import open_executor
    from ..learn.training import train as fit

    if out.resolve().is_relative_to(Path(__file__).resolve().parents[1]):
        raise ConfigError(f"--out {out} lies in the package itself. To fix: name a folder of your own.")
    own, left_out = {}, {}
    for path in measurements or ():
        own[path.name], left_out[path.name] = read_priced_steps(path, device=device, origin=path.name)
    out.mkdir(parents=True, exist_ok=True)  # noticed now, not after the fit
    with ExitStack() as stack:
        map_fn = stack.enter_context(open_executor(ray, workers))
        report = stack.enter_context(progress("Fitting"))
        predictor = fit(own=own, seed=seed, quick=quick, progress=report, map_fn=map_fn).predictor
    predictor.save(out)
    card = predictor.model_card
    if json_output:
        rows = {"rows": card["rows"], "own_rows": len(predictor.measurements.own)}
        write_json({"output": str(out), "seed": seed, **rows, "held_out": card["held_out"]})
        return
    cells = [
        (protocol, str(score["n"]), *(f"{score[name]:.1f}" for name in _SCORES))
        for protocol, score in card["held_out"].items()
    ]
    write_rows("", ("held out by", ">rows", ">MAPE %", ">median %", ">p90 %"), cells)
    for name, reasons in left_out.items():
        for reason, count in reasons.most_common():
            message(f"Left out {count} rows of {name}: {reason}")
    message(f"Wrote the predictor to {out}. To use it: --predictor {out}")
