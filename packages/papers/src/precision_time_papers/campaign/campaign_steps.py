"""The measured steps of a campaign as a table that predict, calibrate and evaluate read.

Beside the table lie the operators of models that no catalog has and a description of the device.
"""

from __future__ import annotations

import csv
import inspect
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from precision_time.corpus.own import STEPS, header_of, is_database, write_graphs
from precision_time.errors import CaptureError, MissingExtraError, PrecisionTimeError, UnknownNameError
from precision_time.hardware.catalog import get_device
from precision_time.hardware.custom import BESIDE, Custom, copy_hardware, hardware_beside, load_custom
from precision_time.io import open_input_text, read_input, write_atomically
from precision_time.workload.graph import OpGraph
from precision_time_integrations.measure.describe import describe
from precision_time_integrations.measure.device import find_device, import_torch
from precision_time_integrations.measure.processor import processor_name
from precision_time_integrations.measure.steps.catalog import TORCHVISION, TORCHVISION_SIZES, built_in_models

from .result import TrialResult
from .rows import corpus_csv, device_name, own_name, why_left_out
from .store import read_store

_OF_A_CAMPAIGN = {"num_workers", "batch_per_worker"}
_SAMPLES = 2
"""Of the batch that a user's function is asked for."""


def write_steps(
    store: Path, to: Path, *, source: str = "own", devices: Path | None = None
) -> tuple[int, Counter[str]]:
    """Write the steps of a campaign's store, and what their names mean beside them.

    Args:
        store: Of a campaign, or its CSV.
        to: File to write.
        source: `source` column.
        devices: File of devices (`measure --cpu --out`) that the workers are; it is copied beside the rows.
            Without one, that beside the store.

    Returns:
        How many rows there are, and why results are none.
    """
    results = read_store(store)
    graphs = graphs_of(results)
    described = devices or hardware_beside(store)
    names = [device.name for device in load_custom(described).devices.values()] if described else []
    text, count = corpus_csv(results, source=source, known=graphs, described=names)
    write_atomically(to, text)
    write_graphs(to, graphs)
    if devices is not None:
        write_atomically(to.with_suffix(BESIDE), read_input(devices))
    elif to != store:
        copy_hardware(store, to)
    return count, Counter(reason for result in results if (reason := why_left_out(result, graphs)))


def unknown_devices(steps: Path) -> Counter[str]:
    """Devices that the rows of a table name and neither the catalog nor the file beside it has."""
    beside = hardware_beside(steps)
    own = load_custom(beside) if beside else Custom()

    def known(name: str) -> bool:
        try:
            return own.find_device(name) is not None or bool(get_device(name))
        except UnknownNameError:
            return False

    with open_input_text(steps, newline="") as file:
        named = Counter(row["device"] for row in csv.DictReader(file))
    return Counter({name: count for name, count in named.items() if not known(name)})


def describe_workers(store: Path) -> None:
    """Describe what one CPU worker of a campaign has, where it ran on this machine."""
    results = [each for each in read_store(store) if not (each.gpus_per_worker or each.cpu_limit)]
    named = {device_name(result): result for result in results if result.step_time_s is not None}
    if not named:
        return
    try:
        torch, here = import_torch(), find_device(kind="cpu")
    except MissingExtraError:  # the workers have it
        return
    threads = torch.get_num_threads()
    try:
        for name, result in named.items():
            if result.device == processor_name():
                torch.set_num_threads(max(1, int(result.cpus_per_worker)))
                describe(replace(here, name=name), store)
    finally:
        torch.set_num_threads(threads)


def graphs_of(results: Sequence[TrialResult]) -> dict[str, OpGraph]:
    """Operators of the models that no catalog has, as far as torch is here and they can be captured."""
    graphs: dict[str, OpGraph] = {}
    for result in results:
        name = own_name(result)
        if result.step_time_s is None or name in graphs or not why_left_out(result):
            continue
        try:
            graph = replace(_captured(result), name=name)
        except (PrecisionTimeError, ImportError):
            continue
        # A captured graph does not know which of its inputs are images.
        side = result.sizes.get("side")
        graphs[name] = replace(graph, image_size=int(side)) if side else graph
    return graphs


def _captured(result: TrialResult) -> OpGraph:
    """The operators of the model of a trial.

    Raises:
        CaptureError: If it is a training loop, or cannot be captured.
    """
    from precision_time.capture.own import load_function
    from precision_time.capture.sources import capture_model

    built_in = built_in_models().get(result.model)
    if built_in is not None:
        from precision_time_integrations.measure.steps.models import INPUTS, MODULES

        sizes = {**built_in.sizes, **result.sizes}
        return capture_model(
            MODULES[result.model](sizes), example_inputs=INPUTS[built_in.inputs](_SAMPLES, sizes)
        )
    if result.model.startswith(TORCHVISION):
        from precision_time_integrations.measure.steps.models import INPUTS, Classifier, torchvision_network

        sizes = {**TORCHVISION_SIZES, "channels": 3, **result.sizes}
        module = Classifier(torchvision_network(result.model, int(sizes["classes"])))
        return capture_model(module, example_inputs=INPUTS["images"](_SAMPLES, sizes))
    if ":" not in result.model:
        return capture_model(result.model)
    function = load_function(result.model)
    if inspect.isgeneratorfunction(function):
        raise CaptureError(f"{result.model} is a training loop.")
    made: Any = function(
        {"batch_size": result.batch_per_worker, "num_samples": result.num_samples, **result.sizes}
    )
    if not (isinstance(made, tuple) and len(made) > 1):
        raise CaptureError(f"{result.model} is a training loop.")
    return capture_model(made[0], example_inputs=made[1] if len(made) == 2 else made[1:])  # noqa: PLR2004


@contextmanager
def steps_file(data: Path) -> Iterator[Path]:
    """A file of measured steps as it is; of a campaign's store or table of trials one that is made now."""
    if is_database(data):
        of_campaign = not is_database(data, of_measurements=True) and not data.with_suffix(STEPS).is_file()
    else:
        of_campaign = {*header_of(data)} >= _OF_A_CAMPAIGN
    if not of_campaign:
        yield data
        return
    with TemporaryDirectory() as folder:
        made = Path(folder) / f"{data.stem}.csv"
        write_steps(data, made)
        yield made
