"""Logs are read as their tools write them, and whatever is cut off or damaged raises nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.errors import CorpusError
from precision_time_integrations.importers.contract import ImportedRun, LoggedStep
from precision_time_integrations.importers.lines import CHUNK_BYTES, LineBuffer, lines_of, seconds_of, time_of
from precision_time_integrations.importers.steady import intervals_of
from precision_time_integrations.importers.text_logs import FORMATS, LogReading, read_log

from .logs import KERAS, LOGS, MEGATRON, MEGATRON_OLD, NANOGPT, TORCHTITAN

NAMES = sorted(LOGS)


def read_text(tmp_path: Path, text: str | bytes, name: str = "train.log") -> list[ImportedRun]:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_log(path)


@pytest.mark.parametrize("name", NAMES)
def test_every_format_is_recognized_and_its_figures_are_read(name: str, tmp_path: Path) -> None:
    form, log = LOGS[name]
    [run] = read_text(tmp_path, log.text)
    assert run.importer == form
    assert len(run.steps) == log.reports
    assert run.steps[-1].step == log.last
    assert run.steps[-1].total_steps == log.total
    assert {key: run.fields.get(key) for key in log.fields} == log.fields
    for interval in intervals_of(run):
        assert log.fastest_s * 0.999 <= interval.step_time_s <= log.slowest_s * 1.001


LLAMA = "".join(
    f"Config param {name}: {value}\n"
    for name, value in {
        "dtype": "bfloat16", "quantization": "fp8", "model_name": "default", "num_experts": 1,
        "base_emb_dim": 4096, "base_num_decoder_layers": 32, "base_num_query_heads": 32,
        "base_num_kv_heads": 8, "base_mlp_dim": 14336, "vocab_size": 128256,
    }.items()
)  # fmt: skip
NANO = "Overriding: dtype = 'bfloat16'\nOverriding: batch_size = 12\n"
FAIR = "Namespace(distributed_world_size=8, fp16=True, max_update=5000)\n| max sentences per GPU = 64\n"
GPU = "GPU 0: Tesla V100-SXM2-32GB\nsamples_per_gpu=2,\nsamples_per_gpu=4\n"
ZERO = "[INFO] [config.py:1:print]   bfloat16_enabled ............. True\n"
TITAN = "with torch.compile\nFloat8 training active\nApplied full activation checkpointing to the model\n"
TREE = 'Running with args: {\n "parallelism": {"tensor_parallel_degree": 2}\n}\n'


@pytest.mark.parametrize(
    ("head", "name", "fields"),
    [
        (LLAMA, "maxtext", {"model": "llama3-8b", "precision": "fp8-mixed", "framework": "jax"}),
        (NANO, "nanogpt", {"batch_size": 12, "precision": "bf16-mixed"}),
        (FAIR, "fairseq", {"batch_size": 64, "precision": "fp16-mixed"}),
        (GPU, "openmmlab", {"batch_size": 2, "device": "V100-SXM2-32GB"}),
        ("IMS_PER_BATCH: 16\n", "detectron2", {"global_batch_size": 16}),
        (ZERO, "deepspeed", {"precision": "bf16-mixed"}),
        (" precision: 16-mixed\n devices: 8\n num_nodes: 2\n", "nemo", {"gpus": 16, "nodes": 2}),
        (TITAN, "torchtitan", {"compiler": "inductor", "precision": "fp8-mixed"}),
        (TREE, "torchtitan", {"tp": 2}),
    ],
)
def test_what_heads_say_of_the_job(head: str, name: str, fields: dict[str, object], tmp_path: Path) -> None:
    [run] = read_text(tmp_path, head + LOGS[name][1].text)
    assert {key: run.fields.get(key) for key in fields} == fields
    [bare] = read_text(tmp_path, LOGS[name][1].text)
    assert bare.fields != run.fields


def test_every_format_has_an_excerpt() -> None:
    assert {form.name for form in FORMATS} == {form for form, _ in LOGS.values()}


_BYTES = {name: log.text.encode() for name, (_, log) in LOGS.items()}


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(NAMES), st.integers(0, 10_000), st.binary(max_size=12))
def test_a_log_cut_anywhere_gives_no_step_time_outside_of_those_logged(
    name: str, place: int, junk: bytes
) -> None:
    form, log = LOGS[name]
    text = _BYTES[name]
    buffer, reading = LineBuffer(), LogReading()
    for line in [*buffer.feed(text[: place % (len(text) + 1)]), buffer.rest()]:
        reading.feed(line)
    best = reading.best
    for run in best.runs(Path("train.log")) if best else ():
        steady = run.steady()
        if steady is not None and run.importer == form:
            assert log.fastest_s * 0.999 <= steady.low_s <= steady.step_time_s <= steady.high_s
            assert steady.high_s <= log.slowest_s * 1.001
    reading.feed(junk.decode(errors="replace"))  # must not raise


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=2000), st.integers(1, 64))
def test_any_bytes_are_lines_however_they_are_read(data: bytes, piece: int) -> None:
    whole, parts = LineBuffer(), LineBuffer()
    once = [*whole.feed(data), whole.rest()]
    pieces = [line for at in range(0, len(data), piece) for line in parts.feed(data[at : at + piece])]
    if piece >= 4 or not data.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb")):
        assert [line for line in (*pieces, parts.rest()) if line] == [
            line for line in once if line
        ] or b"\0" in data
    reading = LogReading()
    for line in once:
        reading.feed(line)


def test_two_runs_in_one_file_are_two_runs(tmp_path: Path) -> None:
    other = MEGATRON_OLD.replace("126995.3", "1000.0").replace(
        "size ................................ 4", "size ... 2"
    )
    first, second = read_text(tmp_path, MEGATRON_OLD + other)
    assert (first.fields["batch_size"], second.fields["batch_size"]) == (4, 2)
    assert first.name != second.name
    assert second.origin.endswith(f"line {2 * len(MEGATRON_OLD.splitlines()) - 3}")


def test_a_resumed_run_is_one_run_and_the_first_step_after_the_restart_is_left_out(tmp_path: Path) -> None:
    def line(step: int, ms: float) -> str:
        return f" iteration {step}/ 100 | consumed samples: 1 | elapsed time per iteration (ms): {ms} |\n"

    text = "".join(line(step, 9000.0 if step == 1 else 100.0) for step in range(1, 21))
    text += "".join(line(step, 7000.0 if step == 16 else 100.0) for step in range(16, 40))
    [run] = read_text(tmp_path, text)
    assert any("went back to a checkpoint 1 times, first at step 16" in note for note in run.notes)
    steady = run.steady()
    assert steady is not None
    assert (steady.step_time_s, steady.low_s, steady.high_s) == (0.1, 0.1, 0.1)
    assert steady.left_out == {"first after a start": 2}


def test_an_evaluation_between_two_steps_is_no_step(tmp_path: Path) -> None:
    [run] = read_text(tmp_path, NANOGPT)
    steady = run.steady()
    assert steady is not None
    assert 1.0 < steady.step_time_s < 1.1
    assert steady.left_out == {"with an evaluation or a checkpoint": 1, "first after a start": 1}


def test_only_the_batch_size_of_most_steps_counts(tmp_path: Path) -> None:
    grown = "".join(
        f" iteration {step}/ 99 | elapsed time per iteration (ms): {10 * batch} | "
        f"global batch size: {batch} |\n"
        for step in range(1, 40)
        for batch in [16 if step < 10 else 64]
    )
    [run] = read_text(tmp_path, grown)
    measured = run.measured({"model": "gpt2", "device": "A100-SXM4-80GB", "gpus": 8})
    assert measured is not None
    assert measured.steady.changed
    assert measured.steady.step_time_s == pytest.approx(0.64)
    assert measured.request_fields()["global_batch_size"] == 64


def test_lines_of_every_process_count_once(tmp_path: Path) -> None:
    doubled = "".join(line + line.replace("rank0", "rank1") for line in TORCHTITAN.splitlines(keepends=True))
    [run] = read_text(tmp_path, doubled)
    assert len(run.steps) == 5


# The first line is of https://github.com/pytorch/torchtitan/pull/950, the second is one of a mesh of 4 axes.
@pytest.mark.parametrize(
    ("mesh", "fields"),
    [
        ("Building 1-D device mesh with ['dp_shard'], [8]", {"gpus": 8, "zero_stage": 3}),
        ("Building 3-D device mesh with ['pp', 'dp_shard', 'tp'], [2, 4, 8]", {"gpus": 64, "tp": 8, "pp": 2}),
        ("Building 2-D device mesh with ['dp_replicate', 'dp_shard'], [2, 4]", {"gpus": 8, "dp_shard": 4}),
        (
            "Building 3-D device mesh with ['dp_replicate', 'dp_shard', 'cp'], [2, 4, 2]",
            {"gpus": 16, "cp": 2, "dp_shard": 8},
        ),
    ],
)
def test_the_mesh_of_torchtitan(mesh: str, fields: dict[str, int], tmp_path: Path) -> None:
    [run] = read_text(tmp_path, f"[titan] 2025-03-12 11:10:12,615 - root - INFO - {mesh}\n{TORCHTITAN}")
    assert {name: run.fields.get(name) for name in fields} == fields
    assert ("batch_size" in run.fields) is ("pp" not in fields)


def test_a_clock_that_goes_back_gives_no_time(tmp_path: Path) -> None:
    [run] = read_text(tmp_path, TORCHTITAN.replace("21:15:40,293", "20:15:40,293"))
    assert sorted(item.step_time_s for item in intervals_of(run))[:2] == pytest.approx([61.232, 61.238])
    steady = run.steady()
    assert steady is not None
    assert steady.step_time_s == pytest.approx(61.238, abs=0.01)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig", "latin-1"])
def test_logs_in_other_encodings(encoding: str, tmp_path: Path) -> None:
    [run] = read_text(tmp_path, ("Prüfung\n" + MEGATRON).encode(encoding))
    assert [step.step_time_s for step in run.steps] == pytest.approx([5.3616, 5.4707, 5.8299])


def test_other_line_ends_colors_and_junk_between(tmp_path: Path) -> None:
    noise = random.Random(0).randbytes(5000).replace(b"\n", b"").replace(b"\r", b"") + b"\n"
    colored = MEGATRON.replace(" iteration", " \x1b[32miteration").replace("\n", "\x1b[0m\r\n")
    [run] = read_text(tmp_path, noise + colored.encode() + noise)
    assert len(run.steps) == 3


def test_a_line_without_end_takes_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(b"x" * (3 * CHUNK_BYTES) + b"\n" + MEGATRON.encode())
    assert max(map(len, lines_of(path))) <= 2 * CHUNK_BYTES
    assert len(read_log(path)[0].steps) == 3


@pytest.mark.parametrize("text", ["", "\n\n", "epoch 1 loss 3.2\n" * 50, "\0" * 1000, '{"a": 1}\n'])
def test_a_log_of_another_tool_is_refused_with_the_formats(text: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="torchtitan, nemo, megatron") as error:
        read_text(tmp_path, text)
    assert "To fix" in str(error.value)


def test_keras_says_how_coarse_its_times_are(tmp_path: Path) -> None:
    [run] = read_text(tmp_path, KERAS.replace("87us", "8ms").replace("77us", "7ms"))
    assert any("rounds" in note for note in run.notes)


def test_a_clock_of_whole_seconds_is_read_over_windows() -> None:
    steps = [LoggedStep(step=step, at_s=float(int(step * 0.37)), step_time_s=0.5) for step in range(1, 2000)]
    run = ImportedRun(name="r", origin="r", importer="tqdm", steps=steps, clock_resolution_s=1.0)
    steady = run.steady()
    assert steady is not None
    assert steady.step_time_s == pytest.approx(0.37, rel=0.02)


def test_times_and_durations() -> None:
    assert time_of("[2024-02-29 00:00:01.5] x") == time_of("2024-02-29T00:00:01,500 x")
    assert time_of("no time 2024-13-45 00:00:00") is None
    assert seconds_of("1 day, 2:00:01") == 93601.0
    assert seconds_of("garbage") is None
