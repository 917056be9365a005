"""The samples of a fine-tune: how long they are by its data set, and how they are put into rows.

What is trained must not change with the device: row and packing are those that most people take for a method,
whatever they run it on (`practice.usual_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ..cost.job import Job
from ..diagnostics import Diagnostics
from ..records import dataclass
from ..workload.workload import Workload
from .dataset_files import file_of, is_file
from .practice import usual_rows
from .question import family_of, lengths_of_dataset, method_of
from .schema import RequestFields
from .votes import classes_table

_LENGTHS = ("mean_seq_len", "packing", "padding_share")
_TUNES = ("full", "lora", "qlora", "preference")
_PAIRS = ("dpo", "reward")
_LANGUAGE = "language"
_Asked = TypeVar("_Asked", bound=RequestFields)


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetRows:
    """Rows that the samples of a data set make where a request does not say them."""

    seq_len: int
    """Tokens of the longest row."""
    mean_seq_len: float
    """Tokens of a sample on average, at most `seq_len`."""
    packing: bool
    whose: str
    """The data set, for a reader; empty where none says a mean, so that rows are full."""
    source: str


def rows_of_dataset(request: RequestFields, workload: Workload) -> DatasetRows | None:
    """The rows of a fine-tune on a data set whose lengths are known; None where they are said or not known.

    A stated `seq_len` says how long the rows are, and nothing is filled in. Pairs without a data set have
    full rows of the usual length.
    """
    graph, pairs = workload.graph, request.method in _PAIRS
    if not (request.dataset or pairs) or request.seq_len is not None or "seq_len" in request.sizes:
        return None
    if graph.seq_len is None or not _is_language_tune(request, workload):
        return None
    mean, whose, source = _mean_of(request.dataset or "")
    trainer = request.stack or (classes_table()["usual"]["of_pairs"] if pairs else None)
    usual = usual_rows(_LANGUAGE, method_of(request, workload), trainer)
    longest = min(int(usual["seq_len"]), graph.seq_len)
    mean = request.mean_seq_len or mean or (longest if pairs and isinstance(request.model, str) else None)
    if not mean:
        return None
    packing = bool(usual["packing"]) and not pairs if request.packing is None else request.packing
    return DatasetRows(
        seq_len=longest,
        mean_seq_len=min(float(mean), float(longest)) if request.mean_seq_len is None else mean,
        packing=packing and request.padding_share is None,
        whose=whose,
        source=source,
    )


def with_dataset_rows(request: _Asked, job: Job, found: Diagnostics) -> _Asked:
    """The request with the lengths of its data set; says what a sample is where that was left open."""
    workload = job.workload
    if _says_answers(request, workload, found):
        return request
    if not _is_language_tune(request, workload) or workload.graph.seq_len is None:
        return request
    rows = rows_of_dataset(request, workload)
    if rows is None:
        _say_length(request, workload, found)
        return request
    if job.stack.unpadded_sequences:  # the mean share of padding is known there
        skips = f"{job.stack.profile} skips; the mean share of padding is known there."
        found.assume("seq_len", f"{rows.seq_len:,} tokens a sample with its padding, which {skips}")
        return request.changed(seq_len=rows.seq_len)
    unit = f"tokens a {'sequence' if request.method in _PAIRS else 'sample'}"
    if not (rows.whose or request.mean_seq_len):
        why = "as trainers of pairs cut them unless told; full rows, as no data set says a length"
        found.assume("seq_len", f"{rows.seq_len:,} {unit}, {why}.")
        return request.changed(seq_len=rows.seq_len)
    mean = f"{rows.mean_seq_len:,.0f} {unit}, {'as said' if request.mean_seq_len else rows.whose}"
    how = "packed into rows of" if rows.packing else "padded in rows of at most"
    found.assume(
        "seq_len",
        f"{mean}, {how} {rows.seq_len:,}; rows as most such fine-tunes have them; mean: {rows.source}.",
    )
    filled: dict[str, Any] = {"seq_len": rows.seq_len}
    if request.padding_share is None:
        filled |= {"mean_seq_len": rows.mean_seq_len, "packing": rows.packing}
    return request.changed(**filled)


def _is_language_tune(request: RequestFields, workload: Workload) -> bool:
    tuned = method_of(request, workload) in _TUNES or is_file(request.dataset)
    return (
        tuned
        and request.method in (None, "sft", *_PAIRS)
        and family_of(workload.family) == _LANGUAGE
        and workload.sample_unit == "sequence"
    )


def _mean_of(dataset: str) -> tuple[float | None, str, str]:
    """Mean tokens of a sample, whose they are in words, and where the number is from."""
    if is_file(dataset):
        read = file_of(dataset)
        return read.mean_tokens, f"{read.name}'s mean", read.source
    known: Mapping[str, Any] = lengths_of_dataset(dataset)
    if not known or known["packing"] == "always":  # running text is cut into full rows
        return None, "", ""
    return float(known["mean_tokens"]), f"{known['name']}'s mean", str(known["source"])


def _say_length(request: RequestFields, workload: Workload, found: Diagnostics) -> None:
    """How long the samples of a fine-tune are where its data set does not say it."""
    length = workload.graph.seq_len
    if any(getattr(request, name) is not None for name in _LENGTHS):
        return
    if request.seq_len is None and "seq_len" not in request.sizes:
        text = f"{length:,} tokens a sample, the usual length of {workload.name}; no data set says another."
        found.assume("seq_len", text)
    elif request.dataset is not None and (mean := _mean_of(request.dataset)[0]) and length and mean < length:
        found.assume(
            "seq_len",
            f"{length:,} tokens a sample, as said; full rows, though the mean of {request.dataset} is "
            f"{mean:,.0f} (mean_seq_len={mean:.0f}, and packing=true where samples share rows).",
        )


def _says_answers(request: RequestFields, workload: Workload, found: Diagnostics) -> bool:
    """Whether a method generates answers; how many there are where the prompts are known."""
    if workload.answers_per_prompt is None:
        return False
    prompts = request.samples or workload.dataset_samples
    answers = workload.answers_per_prompt
    if prompts:
        found.assume(
            "seq_len",
            f"{prompts:,} prompts x {answers} answer{'s' * (answers > 1)}; a data set counts prompts, "
            "a batch answers.",
        )
    return True
