"""Job files and recipes of other programs: which program one is of, and its jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from precision_time.errors import ConfigError
from precision_time.io import open_input, read_yaml_documents
from precision_time.planning.run.schema import RunOptions
from precision_time.request.recipes import PYTHON, kind_of

from .cloud_tasks import files_below
from .estimate import JobEstimate, estimate_job
from .recipes.files import read_recipe

MOST_BYTES = 2**20
"""Of a job file."""
_SCRIPT = re.compile(r"\A#!|^#SBATCH\b", re.M)


def estimate_file(path: Path, *, given: Mapping[str, Any] | None = None) -> list[JobEstimate]:
    """The jobs of a file, estimated.

    Args:
        path: A SkyPilot task, a Slurm script, Kubernetes manifests, a recipe of another project.
        given: Fields of `Request` and `RunOptions` that the user typed, in the place of those of the file.

    Raises:
        ConfigError: If it cannot be read, or is none of these.
    """
    text, kind = read_text(path), kind_of(str(path))
    if kind and (kind == PYTHON or not _SCRIPT.search(text)):
        return [_of_recipe(path, kind, given or {})]
    if _SCRIPT.search(text):
        from .slurm.script import estimate_script

        return [estimate_script(text, files=files_below(path.parent), given=given)]
    return estimate_documents(_documents(path, text), path=path, given=given)


def _of_recipe(path: Path, kind: str, given: Mapping[str, Any]) -> JobEstimate:
    """A recipe with its report, which says what of it is assumed and not understood."""
    recipe = read_recipe(str(path), kind)
    stated = {
        name: value
        for name, value in given.items()
        if value is not None and name not in RunOptions.model_fields
    }
    return estimate_job(
        source=recipe.project,
        name=path.name,
        fields=recipe.job(stated),
        options=recipe.run,
        unread=recipe.unread,
        report=tuple(recipe.lines(stated)),
        given=given,
    )


def estimate_documents(
    documents: list[Any], *, path: Path, given: Mapping[str, Any] | None = None
) -> list[JobEstimate]:
    """As `estimate_file`, of the documents of a YAML file.

    Raises:
        ConfigError: If they are of no program known here.
    """
    from . import skypilot

    if any(isinstance(each, Mapping) and "apiVersion" in each for each in documents):
        from .kubernetes.estimates import estimate

        return estimate(documents, given=given)
    if any(skypilot.is_task(each) for each in documents):
        return skypilot.estimate(documents, folder=path.parent, given=given)
    raise ConfigError(
        f"{path} is no job file that is known here. The rule: a SkyPilot task has `run` and `resources`, a "
        "Kubernetes manifest `apiVersion` and `kind`, a Slurm script `#!` on its first line, a recipe the "
        "keys of a project that docs/reference/recipes.md lists. To fix: give such a file, or the job itself "
        "to `precision-time predict --whole-run`."
    )


def read_text(path: Path) -> str:
    """The text of a job file.

    Raises:
        ConfigError: If it cannot be read, is too large, or is no text.
    """
    try:
        with open_input(path) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) <= MOST_BYTES:
            return content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}. To fix: check path and encoding.") from error
    raise ConfigError(f"{path} is larger than {MOST_BYTES // 2**20} MiB. To fix: give the file of one job.")


def _documents(path: Path, text: str) -> list[Any]:
    try:
        return read_yaml_documents(text)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path} is not a valid YAML file: {reason}. To fix: correct it.") from error
