"""A bad value is named as its user wrote it, with the value, the rule and the remedy, whatever the way in."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from precision_time.errors import PrecisionTimeError
from precision_time.predict.api import predict, predict_time
from precision_time.request.files import read_requests
from precision_time.request.request import Request
from precision_time.request.schema import ALIASES, RequestFields
from precision_time.request.sweep import combinations_of

COUNT = (0, "a whole number of at least 1")
SWITCH = ("maybe", "true or false")
POSITIVE = (-1.5, "a number above 0")
BROKEN: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("gpus", "nodes", "seq_len", "image_size", "samples", "steps", "cpus"), COUNT),
    **dict.fromkeys(("frames", "lora_rank", "generate_tokens", "group_size"), COUNT),
    **dict.fromkeys(("prompts", "updates", "generate_gpus", "generate_tp", "off_policy"), COUNT),
    **dict.fromkeys(("audio_seconds", "mean_seq_len", "answer_tokens", "answer_spread"), POSITIVE),
    "engine": ("ollama", "one of vllm, sglang, trtllm or hf"),
    "packing": SWITCH,
    "padding_share": (1.0, "below 1"),
    "adapter": ("lokr", "one of lora, qlora, dora, qdora or qlora8"),
    "recompute": ("some", "one of none, selective or full"),
    "recompute_layers": (-1, "a number of at least 0"),
    "method": ("sftt", "one of sft, dpo, reward, distill, grpo or ppo"),
    **dict.fromkeys(("tokens", "global_batch_tokens"), COUNT),
    **dict.fromkeys(("tp", "pp", "cp", "ep", "etp", "vpp", "num_microbatches"), COUNT),
    **dict.fromkeys(("batch_size", "global_batch_size", "epochs", "input_rate"), POSITIVE),
    "software": (-1.5, "a number of at least 1990"),
    **dict.fromkeys(
        ("dp_shard", "dp_replicate", "prefetch", "expert_nodes"), (-1, "a whole number of at least 0")
    ),
    **dict.fromkeys(
        ("channels_last", "fused_optimizer", "unpadded_sequences", "chunked_loss", "real_input"), SWITCH
    ),
    **dict.fromkeys(("reshard_after_forward", "sequence_parallel", "uneven", "stragglers", "trust"), SWITCH),
    "expert_overlap": SWITCH,
    "loader": ("hdf5", "one of synthetic, pil, tf.data, dali or ffcv"),
    "sizes": ("wide", "a mapping of names to values"),
    "zero_stage": (4, "at most 3"),
    "expert_capacity_factor": (-0.5, "a number of at least 0"),
    "coverage": (1.5, "at most 0.999999999"),
    "offload": ("disk", "one of none, optimizer or parameters"),
    "data_parallel_engine": ("horovod", "one of ddp, dataparallel, parameter-server or none"),
    "cp_comm_type": ("rings", "one of ring, all-gather or ulysses"),
    "schedule": ("2f2b", "one of gpipe, 1f1b, interleaved or zero-bubble"),
    "compiler": ("gcc", "one of none, inductor, xla, cudagraphs, torchscript or graph"),
    "attention": ("flash4", "one of math, memory-efficient, flash1, flash2 or flash3"),
    "scope": ("minute", "one of "),
}
"""Value that breaks the rule of a field, and the rule."""
FOUND_LATER: dict[str, tuple[Any, str]] = {
    "model": ("resnet5o", "Unknown model 'resnet5o'. Did you mean"),
    "device": ("A100-SXM4-8OGB", "Unknown device 'A100-SXM4-8OGB'. Did you mean"),
    "node_type": ("DGX-A10", "Unknown node type 'DGX-A10'. Did you mean"),
    "network": ("pigeons", "Unknown network 'pigeons'. To fix: write Gbit/s of a host"),
    "precision": ("bf17", "Unknown precision 'bf17'. Did you mean"),
    "optimizer": ("adamww", "Unknown optimizer 'adamww'. Did you mean"),
    "framework": ("pytorhc", "Unknown framework 'pytorhc'. Did you mean"),
    "stack": ("pytorch-eagre", "Unknown stack 'pytorch-eagre'. Did you mean"),
    "rank_order": ("tp-pp", "rank_order=tp-pp must name each of tp, cp, dp, pp once"),
    "stage_layers": ("eight", "stage_layers='eight' is not a list of layers per stage"),
    "recompute_modules": ("nothing", "recompute_modules='nothing' is none of core_attn"),
    "custom": ("missing.toml", "missing.toml"),
    "calibration": ("missing.json", "missing.json"),
    "predictor": ("missing", "No predictor in "),
    "lora_targets": ("q", "lora_targets=q changes nothing without adapters"),
    "freeze": ("tower", "freeze='tower' names nothing"),
    "reference": ("gpt2", "reference=gpt2 does not apply"),
    "teacher": ("gpt2", "teacher=gpt2 does not apply"),
    "forward": ("train", "forward does not apply to "),
    "loss": ("mine:loss", "loss does not apply to "),
    "anchors": ("gpus=1", "The anchor 'gpus=1' must state one of step_time_s and samples_per_s"),
}
"""Names and words that the request itself cannot judge; the message comes with the answer."""
LINKS = {"intra_node", "inter_node"}
"""Measured runs name links in free words: what is not known is said, not refused."""
ANY = {"inputs", "task", "dataset", "example_inputs", "cluster"}
"""Fields that take any text, and those for Python only."""


def fault(ask: Callable[[], Any]) -> str:
    with pytest.raises(PrecisionTimeError) as caught:
        ask()
    return str(caught.value)


def test_every_field_is_checked_here() -> None:
    assert {*BROKEN, *FOUND_LATER, *LINKS, *ANY} == {name for name in RequestFields.model_fields}


@pytest.mark.parametrize("name", BROKEN)
def test_as_an_argument(name: str) -> None:
    value, rule = BROKEN[name]
    text = fault(lambda: predict_time(**{"model": "resnet50", name: value}))
    assert text.startswith(f"{name}={value!r} is invalid: it must be ")
    assert rule in text
    assert re.search(r"\. To fix: .+\.$", text)


@pytest.mark.parametrize("name", [name for name in BROKEN if name != "sizes" and BROKEN[name] != SWITCH])
def test_as_an_option(parsed: Callable[[Sequence[str]], Request], name: str) -> None:
    value, rule = BROKEN[name]
    option = f"--{name.replace('_', '-')}"
    text = fault(lambda: parsed(["resnet50", option, str(value)]))
    assert text.startswith(f"{option}={value} is invalid: it must be ")
    assert rule in text
    assert re.search(r"\. To fix: .+\.$", text)


@pytest.mark.parametrize("suffix", [".yaml", ".csv"])
@pytest.mark.parametrize("name", BROKEN)
def test_in_a_file(filed: Callable[..., list[Request]], name: str, suffix: str) -> None:
    value, rule = BROKEN[name]
    jobs = [{"model": "resnet50"}, {"model": "resnet50", name: value}]
    text = fault(lambda: filed(jobs, suffix))
    shown = repr(str(value)) if suffix == ".csv" else repr(value)
    place = "line 3" if suffix == ".csv" else "job 2"
    assert f"jobs{suffix}, {place}: {name}={shown} is invalid: it must be " in text
    assert rule in text
    assert re.search(r"\. To fix: .+\.$", text)


@pytest.fixture
def _no_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown names are not looked up in timm and transformers, whose import takes seconds."""

    def refuse(name: str, request: Request, unknown: PrecisionTimeError) -> None:
        raise unknown

    monkeypatch.setattr("precision_time.request.resolve.capture_by_name", refuse)


@pytest.mark.usefixtures("_no_capture")
@pytest.mark.parametrize("name", FOUND_LATER)
@pytest.mark.parametrize("way", ["argument", "option", ".yaml", ".csv"])
def test_what_the_answer_finds(
    parsed: Callable[[Sequence[str]], Request], filed: Callable[..., list[Request]], name: str, way: str
) -> None:
    value, message = FOUND_LATER[name]
    job = {
        "model": "llama3-8b",
        "gpus": 16,
        "nodes": 2,
        "batch_size": 1,
        "pp": 2,
        "num_microbatches": 8,
        name: value,
    }

    def ask() -> Any:
        if way == "argument":
            return predict_time(**job)
        if way == "option":
            words = [
                word for each in job.items() for word in (f"--{each[0].replace('_', '-')}", str(each[1]))
            ]
            return predict(parsed([job["model"], *words[2:]]))
        return predict(filed([job], way)[0])

    text = fault(ask)
    assert message in text
    assert "To fix: " in text or "Did you mean" in text


@pytest.mark.parametrize("name", sorted(LINKS))
def test_a_link_that_is_not_known_is_refused_with_the_way_out(name: str) -> None:
    text = fault(lambda: predict_time("resnet50", gpus=16, batch_size=64, **{name: "pigeons"}))
    assert "'pigeons'" in text
    assert f"leave {name} away" in text


def test_unknown_fields_offer_the_nearest(filed: Callable[..., list[Request]]) -> None:
    for ask in (
        lambda: predict_time("resnet50", batchsize=3),
        lambda: filed([{"model": "resnet50", "batchsize": 3}], ".yaml"),
        lambda: filed([{"model": "resnet50", "batchsize": 3}], ".csv"),
    ):
        assert "Unknown field 'batchsize'. Did you mean batch_size" in fault(ask)


def test_a_request_without_a_model_says_so(filed: Callable[..., list[Request]]) -> None:
    assert "model is missing. To fix: give model." in fault(lambda: filed([{"gpus": 8}], ".csv"))
    for misspelled in ("modle", "Model"):
        for ending in (".csv", ".yaml"):
            text = fault(lambda name=misspelled, end=ending: filed([{name: "resnet50"}], end))  # type: ignore[misc]
            assert f"Unknown field '{misspelled}'. Did you mean model" in text


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        (".yaml", "model: resnet50\ngpus: 8\ngpus: 16\n"),
        (".yaml", "jobs:\n- {model: resnet50, gpus: 8, gpus: 16}\n"),
        (".json", '[{"model": "resnet50", "gpus": 8, "gpus": 16}]'),
        (".jsonl", '{"model": "resnet50", "gpus": 8, "gpus": 16}\n'),
        (".csv", "model,gpus, gpus\nresnet50,8,16\n"),
    ],
)
def test_a_field_that_stands_twice_is_refused(tmp_path: Path, ending: str, text: str) -> None:
    path = tmp_path / f"job{ending}"
    path.write_text(text, encoding="utf-8")
    assert "'gpus' stands in it twice. To fix" in fault(lambda: read_requests(path))


def test_merged_fields_and_a_header_of_a_spreadsheet_are_no_doubles(tmp_path: Path) -> None:
    merged = tmp_path / "job.yaml"
    merged.write_text("- &base {model: resnet50, gpus: 8}\n- {<<: *base, gpus: 16}\n", encoding="utf-8")
    assert [each.gpus for each in read_requests(merged)] == [8, 16]
    table = tmp_path / "jobs.csv"
    table.write_text("model, gpus ,,\nresnet50, 8,,\n", encoding="utf-8")
    assert [(each.model, each.gpus) for each in read_requests(table)] == [("resnet50", 8)]


@pytest.mark.parametrize("value", [["A100", "H100"], ("A100",)])
def test_several_values_where_one_is_asked_are_told_apart(value: Any) -> None:
    assert "it must be one value. To fix: give one; sweeps" in fault(
        lambda: predict_time("resnet50", device=value)
    )
    for given in ("8..64", "8,16", [8, 16]):
        text = fault(lambda gpus=given: predict_time("resnet50", gpus=gpus))  # type: ignore[misc]
        assert text.startswith(f"gpus={given!r} is invalid: it must be one value.")


def test_a_comma_within_a_number_parts_no_values() -> None:
    for given in ("1,024", "10,000,000"):
        text = fault(lambda samples=given: combinations_of({"model": "resnet50", "samples": samples}))  # type: ignore[misc]
        assert text.startswith(f"samples={given}: a comma parts values. To fix: ")
    sizes = [each.batch_size for each in combinations_of({"model": "resnet50", "batch_size": "8,192"})]
    assert sizes == [8.0, 192.0]


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_other_names_of_a_field_are_named_as_written(alias: str, name: str) -> None:
    value, rule = BROKEN.get(name, (None, ""))
    if value is None:
        assert Request.of({"model": "resnet50", alias: "DGX-A100"}).given()[name] == "DGX-A100"
        return
    text = fault(lambda: predict_time(**{"model": "resnet50", alias: value}))
    assert text.startswith(f"{alias}={value!r} is invalid: it must be ")
    assert rule in text


@pytest.mark.parametrize("value", [True, float("nan"), float("inf"), [], {}, "", "eight", "1.5"], ids=repr)
def test_what_is_not_a_count_is_refused(value: Any) -> None:
    text = fault(lambda: Request.of({"model": "resnet50", "gpus": value}))
    assert text.startswith(f"gpus={value!r} is invalid: it must be ")
    assert "To fix: " in text


@pytest.mark.parametrize("value", ["8", " 8 ", 8.0, "8.0"], ids=repr)
def test_numbers_given_as_text_are_numbers(value: Any) -> None:
    assert Request.of({"model": "resnet50", "gpus": value}).gpus == 8


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a.yaml", "- 3\n"),
        ("a.yaml", "model: [\n"),
        ("a.toml", "model = \n"),
        ("a.json", '[{"model": }]'),
        ("a.jsonl", "nothing\n"),
        ("a.csv", "model,gpus\nresnet50\n"),
        ("a.csv", ""),
        ("a.yaml", ""),
        ("a.json", "[]"),
        ("a.yaml", "jobs: 3\n"),
    ],
)
def test_a_file_that_holds_no_jobs_says_so(tmp_path: Any, content: str, said: str) -> None:
    from precision_time.request.files import read_requests

    path = tmp_path / content
    path.write_text(said, encoding="utf-8")
    text = fault(lambda: read_requests(path))
    assert content in text and "To fix: " in text
    assert "\n" not in text
