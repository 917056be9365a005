"""The samples of a run: lengths by data set, files counted, prompts and answers, misfits refused."""

import json
import os
from pathlib import Path

import pytest

from precision_time import predict_time
from precision_time.barrier import data_only
from precision_time.diagnostics import SAMPLES
from precision_time.errors import ConfigError
from precision_time.request.dataset_files import file_of
from precision_time.request.question import lengths_of_dataset
from precision_time.request.request import Request

_TUNE = {"model": "llama3-8b", "adapter": "lora", "device": "A100-SXM4-80GB", "batch_size": 4}


def _said(**fields: object) -> str:
    job = Request.of({**_TUNE, **fields}).resolve()
    return " ".join(item.text for item in job.diagnostics if item.code == SAMPLES)


@pytest.mark.parametrize("name", ["alpaca", "tatsu-lab/alpaca", "dolly", "guanaco", "oasst1", "openorca"])
def test_samples_are_as_long_as_those_of_the_data_set(name: str) -> None:
    known = lengths_of_dataset(name)
    job = Request.of({**_TUNE, "dataset": name}).resolve()
    assert job.workload.units_per_sample == known["mean_tokens"]
    assert job.workload.largest is not None and job.workload.largest.seq_len == 2048
    assert _said(dataset=name).startswith(f"{known['mean_tokens']} tokens a sample, {known['name']}'s mean")


@pytest.mark.parametrize("method", ["dpo", "reward"])
def test_pairs_are_as_long_as_their_data_set_and_trainer_have_them(method: str) -> None:
    """The context of the model, 8,192 tokens, is nobody's max_length: 7 h of UltraFeedback were 49 min."""
    known = lengths_of_dataset("ultrafeedback")["mean_tokens"]
    pairs = {**_TUNE, "method": method}
    of_set = Request.of({**pairs, "dataset": "ultrafeedback"}).resolve().workload
    assert of_set.units_per_sample == known
    assert of_set.largest is None or of_set.largest.seq_len == 1024
    for more, length in (({}, 1024), ({"stack": "torchtune"}, 2048), ({"seq_len": 4096}, 4096)):
        assert Request.of({**pairs, **more}).resolve().workload.graph.seq_len == length
    assert "1,024 tokens a sequence" in _said(method=method)
    small = Request.of({**pairs, "model": "gpt2", "device": "A100", "dataset": "openorca"}).resolve()
    assert small.workload.samples_per_row == 1.0  # pairs are not packed


def test_rows_do_not_depend_on_the_device() -> None:
    asked = {**_TUNE, "dataset": "dolly", "batch_size": 1}
    for device in ("A100-SXM4-80GB", "RTX4090", "H100-SXM5-80GB"):
        workload = Request.of({**asked, "device": device}).resolve().workload
        assert workload.largest is not None and workload.largest.seq_len == 2048
        assert workload.units_per_sample == 182


def test_filled_in_lengths_are_those_of_the_request_that_states_them() -> None:
    said = predict_time(**_TUNE, dataset="alpaca", seq_len=2048, mean_seq_len=125, packing=False)
    assert predict_time(**_TUNE, dataset="alpaca").analytical_step_time_s == pytest.approx(
        said.analytical_step_time_s, rel=1e-12
    )


def test_stated_lengths_stay_and_what_they_leave_out_is_said() -> None:
    full = Request.of({**_TUNE, "dataset": "alpaca", "seq_len": 512}).resolve().workload
    assert (full.graph.seq_len, full.samples_per_row, full.largest) == (512, 1.0, None)
    assert "mean_seq_len=125" in _said(dataset="alpaca", seq_len=512)
    packed = Request.of({**_TUNE, "dataset": "alpaca", "packing": True}).resolve().workload
    assert packed.samples_per_row == pytest.approx(2048 / 125)
    assert "300 tokens a sample, as said" in _said(dataset="alpaca", mean_seq_len=300)


def test_running_text_fills_its_rows() -> None:
    asked = {"model": "gpt2", "device": "A100-SXM4-80GB", "batch_size": 4}
    rows = [Request.of({**asked, **more}).resolve().workload for more in ({}, {"dataset": "openwebtext"})]
    assert [each.graph.seq_len for each in rows] == [1024, 1024]
    assert [each.largest for each in rows] == [None, None]


@pytest.mark.parametrize("fields", [{"dataset": "alpaca"}, {}, {"dataset": "wikitext103"}])
def test_the_length_of_a_fine_tune_stands_in_the_first_line(fields: dict[str, str]) -> None:
    found = predict_time(**{**_TUNE, "batch_size": 1}, **fields)
    first = next(iter(found.blocks()))
    assert "tokens a sample" in getattr(first, "text", "")
    assert "tokens a sample" in found.in_one_line()


@pytest.mark.parametrize("batches", [[1, 2, 4], [3, 8]])
def test_a_sweep_over_batches_has_the_rows_that_each_has_alone(batches: list[int]) -> None:
    from precision_time.request.batches import jobs_at_batches

    request = Request.of({**_TUNE, "dataset": "alpaca"})
    jobs, which, refused = jobs_at_batches(request, "batch_size", batches)
    assert not refused
    for row, batch in enumerate(which):
        alone = request.with_(batch_size=batches[batch]).resolve()
        assert jobs.row(row).workload.graph.seq_len == alone.workload.graph.seq_len


def test_a_data_set_counts_prompts_of_which_each_has_its_answers() -> None:
    asked = {"model": "qwen2.5-1.5b", "method": "grpo", "device": "8xH100", "batch_size": 8}
    runs = [predict_time(**asked, epochs=1, **more) for more in ({"samples": 7473}, {"dataset": "gsm8k"})]
    assert [each.total_steps for each in runs] == [-(-7473 * 8 // 64)] * 2
    assert all("7,473 prompts x 8 answers" in each.in_one_line() for each in runs)
    assert predict_time(**asked, samples=7473, epochs=1, group_size=16).total_steps == -(-7473 * 16 // 64)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", "\n".join(json.dumps({"text": "x" * 800}) for _ in range(30)) + "\n\n"),
        ("a.json", json.dumps([{"turns": [{"content": "x" * 300}, {"content": "x" * 500}]}] * 30)),
        ("a.csv", "instruction,output\n" + ("x" * 400 + "," + "x" * 400 + "\n") * 30),
    ],
)
def test_rows_of_a_file_are_counted_and_its_tokens_estimated(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    read = file_of(str(path))
    assert (read.samples, read.mean_tokens) == (30, 200)
    found = predict_time(**_TUNE, dataset=str(path), epochs=2)
    assert found.total_steps == 16  # 30 of 4 are 8 steps
    assert f"200 tokens a sample, {name}'s mean" in found.in_one_line()
    assert str(tmp_path) not in found.in_one_line()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("bad.jsonl", '{"a": 1}\n{nope\n', "line 2"),
        ("empty.jsonl", "\n", "no rows"),
        ("one.json", '{"a": 1}', "no list"),
        ("a.parquet", "PAR1", "not read"),
        ("missing.jsonl", None, "cannot be read"),
    ],
)
def test_a_bad_file_is_refused_with_a_remedy(tmp_path: Path, name: str, text: str | None, says: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=says) as caught:
        predict_time(**_TUNE, dataset=str(tmp_path / name))
    assert "To fix" in str(caught.value)


def test_a_service_and_data_name_no_files(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "hello"}\n')
    request = Request.of({**_TUNE, "dataset": str(path)})
    with pytest.raises(ConfigError, match="is a file"):
        request.resolve(named_only=True)
    with data_only(), pytest.raises(ConfigError, match="is a file"):
        request.resolve()


@pytest.mark.parametrize(
    ("model", "dataset"),
    [("llama3-8b", "cifar10"), ("llama3-8b", "imagenet21k"), ("llama3-8b", "coco"), ("gpt2", "librispeech"),
     ("resnet50", "alpaca"), ("vit_base_patch16_224", "wikitext103")],
)  # fmt: skip
def test_data_that_a_model_cannot_read_is_refused_with_what_it_can(model: str, dataset: str) -> None:
    with pytest.raises(ConfigError, match="To fix: a data set of"):
        Request.of({"model": model, "dataset": dataset, "device": "A100", "batch_size": 1}).resolve()


def test_a_pipe_is_no_data_set(tmp_path: Path) -> None:
    pipe = tmp_path / "never.jsonl"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match=r"never\.jsonl cannot be read.*To fix"):
        file_of(str(pipe))
