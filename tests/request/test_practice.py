"""Practice as data: alternatives that a question could have said itself, whose weights mean something."""

import itertools
from collections import defaultdict
from typing import Any

import pytest

from precision_time.diagnostics import Diagnostics
from precision_time.errors import ConfigError
from precision_time.hardware.catalog import get_device
from precision_time.io import packaged_toml
from precision_time.request.practice import Practice, axes_of, practice, runs_on, scenarios, stacks_on
from precision_time.request.question import Question, question_of
from precision_time.request.request import Request
from precision_time.request.resolve import cluster_of, workload_of
from precision_time.request.schema import RequestFields
from precision_time.request.votes import CLASSES, STACK, shipped_votes
from precision_time.workload.families.tables import dataset_table, normalize

_DEVICES = (
    "RTX4090",
    "2xRTX3090",
    "A100",
    "4x8xH100",
    "2x8xA100",
    "T4",
    "8xV100",
    "8xTPUv4",
    "8xGaudi2",
    "8xMI300X",
    "A6000",
)
_JOBS: tuple[dict[str, Any], ...] = (
    {"model": "resnet50"},
    {"model": "resnet50", "global_batch_size": 1024},
    {"model": "llama3-8b"},
    {"model": "llama3-8b", "adapter": "lora", "dataset": "alpaca"},
    {"model": "llama3-8b", "adapter": "qlora", "dataset": "dolly", "seq_len": 512},
    {"model": "qwen2.5-1.5b", "method": "grpo", "dataset": "gsm8k"},
    {"model": "qwen2.5-1.5b", "method": "grpo", "global_batch_size": 64},
    {"model": "gpt2", "framework": "jax"},
    {"model": "bert-base", "task": "squad-finetune"},
    {"model": "llama3-70b", "adapter": "lora"},
)
_EXAMPLE = {
    "gaming": "RTX4090", "workstation": "A6000", "small-cloud": "T4", "data-center": "A100", "tpu": "TPUv4",
    "gaudi": "Gaudi2", "trainium": "NeuronCore-v2", "ascend": "Ascend910B", "ipu": "IPU-GC200",
    "apple": "M3 Max", "amd": "MI300X", "amd-gaming": "RX7900XTX", "cpu": "CPU-Xeon-Platinum-8480+",
}  # fmt: skip
"""A device of each kind."""


def _file(name: str) -> Any:
    return packaged_toml("precision_time.request", f"data/practice/{name}.toml")


def _asked(**fields: Any) -> Practice:
    request = Request.of(fields)
    cluster = cluster_of(request, Diagnostics())
    return practice(question_of(request, workload_of(request), cluster))


@pytest.fixture(scope="module")
def answers() -> list[tuple[dict[str, Any], Practice]]:
    asked = [{**job, "device": device} for job in _JOBS for device in _DEVICES]
    asked = [job for job in asked if "jax" not in job.values() or "Gaudi" not in job["device"]]
    return [(job, _asked(**job)) for job in asked]


def test_weights_are_shares_and_the_usual_one_is_first(
    answers: list[tuple[dict[str, Any], Practice]],
) -> None:
    for _, found in answers:
        points = [found.stacks, *itertools.chain(*(point.values() for point in found.settings.values()))]
        for alternatives in points:
            weights = [each.weight for each in alternatives]
            assert sum(weights) == pytest.approx(1.0)
            assert weights == sorted(weights, reverse=True) and weights[-1] > 0.0
            assert all(each.source and each.reason for each in alternatives)


def test_every_scenario_is_a_request_that_can_be_resolved(
    answers: list[tuple[dict[str, Any], Practice]],
) -> None:
    for job, found in answers:
        for weight, fields in scenarios(found, most=6):
            assert weight > 0.0
            Request.of({**job, **fields}).resolve()


def test_what_is_said_is_left_as_it_is(answers: list[tuple[dict[str, Any], Practice]]) -> None:
    for job, found in answers:
        assert job.keys() <= found.question.given | {"model", "device", "gpus", "nodes"}
        for _, fields in scenarios(found):
            assert not fields.keys() & job.keys()


def test_scenarios_are_few_and_start_with_the_usual_one(
    answers: list[tuple[dict[str, Any], Practice]],
) -> None:
    for (_, found), most in zip(answers, itertools.cycle((1, 8, 32)), strict=False):
        joint = scenarios(found, most)
        assert 1 <= len(joint) <= most
        assert sum(each.weight for each in joint) == pytest.approx(1.0)
        assert joint == scenarios(found, most)
        usual = joint[0].fields
        stack = str(found.stacks[0].fields.get(STACK, found.question.stack))
        for point in found.points(stack).values():
            assert point[0].fields.items() <= usual.items()


def test_thinning_keeps_the_weight_of_every_alternative() -> None:
    found = _asked(model="llama3-8b", device="8xH100", adapter="lora", dataset="alpaca")
    for most, within in ((32, 0.08), (256, 0.02)):
        kept: dict[Any, float] = defaultdict(float)
        for weight, fields in scenarios(found, most):
            kept[fields[STACK]] += weight
        for each in found.stacks:
            assert kept[each.fields[STACK]] == pytest.approx(each.weight, abs=within)


def test_fewer_than_one_scenario_is_refused() -> None:
    with pytest.raises(ConfigError, match="To fix"):
        scenarios(_asked(model="resnet50", device="A100"), most=0)


def test_what_the_device_or_stack_cannot_do_is_no_alternative() -> None:
    tpu = _asked(model="llama3-8b", device="8xTPUv4")
    assert {each.fields[STACK] for each in tpu.stacks} <= {"jax-xla", "xla-tpu"}
    for name in ("P100", "GTX1080Ti"):
        old = _asked(model="resnet50", device=name)
        compilers = {
            each.fields["compiler"] for point in old.settings.values() for each in point.get("compiler", ())
        }
        assert "inductor" not in compilers
    volta = _asked(model="gpt2", device="V100")
    precisions = {
        each.fields["precision"] for point in volta.settings.values() for each in point.get("precision", ())
    }
    assert precisions and not precisions & {"bf16-mixed", "bf16", "tf32", "fp8-mixed"}
    crowded = _asked(model="llama3-8b", device="2xRTX4090")
    assert crowded.question.room == "crowded"
    for stack, points in crowded.settings.items():
        stages = {each.fields["zero_stage"] for each in points.get("sharding", ())}
        assert "pp" in axes_of(stack) or 0 not in stages


def test_practice_is_of_the_method_and_the_device() -> None:
    """LoRA on two gaming cards: Trainer, DDP, recomputation; a large model: trainers that can cut it up."""
    lora = _asked(model="llama3-8b", device="2xRTX4090", adapter="lora", dataset="alpaca")
    usual = scenarios(lora)[0].fields
    assert (usual[STACK], usual["zero_stage"], usual["recompute"]) == ("hf-trainer", 0, "full")
    assert usual["mean_seq_len"] == pytest.approx(125.0, rel=0.2) and usual["seq_len"] >= 512
    pretrain = _asked(model="llama3-70b", device="128x8xH100", tokens="1T")
    cut_up = sum(each.weight for each in pretrain.stacks if "pp" in axes_of(str(each.fields[STACK])))
    assert cut_up > 0.5 and pretrain.stacks[0].fields[STACK] == "megatron"


def test_a_year_brings_back_the_practice_of_then() -> None:
    def weight(model: str, device: str, stack: str, **year: float) -> float:
        found = _asked(model=model, device=device, **year)
        return sum(each.weight for each in found.stacks if each.fields[STACK] == stack)

    resnet = ("resnet50", "8xV100", "ngc-tensorflow")
    assert weight(*resnet, software=2019.0) > 1.2 * weight(*resnet)
    llama = ("llama3-8b", "8xA100", "torchtitan")
    assert weight(*llama, software=2021.0) < 0.8 * weight(*llama)
    today = _asked(model="resnet50", device="8xA100")
    years = today.points("pytorch-eager")["software"]
    assert years[0].fields["software"] == _file("classes")["today"]
    assert all(each.fields["software"] >= get_device("A100").release_year + 0.5 for each in years)


def test_a_global_batch_is_cut_up_without_a_rest() -> None:
    found = _asked(model="llama3-8b", device="4xA100", adapter="lora", global_batch_size=48)
    for points in found.settings.values():
        for each in points.get("batch", ()):
            assert 12 % each.fields["batch_size"] == 0


def test_data_name_fields_stacks_and_sources() -> None:
    fields = RequestFields.model_fields.keys()
    points = _file("stacks")["points"]
    assert {name for names in points.values() for name in names} <= fields
    cast = shipped_votes()
    for (point, stack), votes in cast.settings.items():
        assert point in points and (stack == "*" or Request.of({"model": "gpt2", "stack": stack}))
        for vote in votes:
            assert vote.votes > 0.0 and vote.source
            assert vote.fields.keys() <= {*points[point], "years_after_device"}
            assert vote.classes.keys() <= set(CLASSES)
    kinds = {row["name"] for row in _file("classes")["kind"]}
    families = set(_file("classes")["families"].values())
    for vote in cast.stacks:
        assert set(vote.classes.get("kind", kinds)) <= kinds
        assert set(vote.classes.get("family", families)) <= families
    for kind in kinds:
        assert stacks_on(kind)


def test_data_sets_with_a_length_have_samples() -> None:
    for name, row in _file("lengths")["dataset"].items():
        assert row["source"] and row["tokenizer"] and row["packing"] in ("never", "often", "always")
        assert row["mean_tokens"] > 0
        assert normalize(name) in dataset_table(), name


def test_stacks_run_where_they_were_measured() -> None:
    """Every class of measured rows is one that the rules allow."""
    table = _file("counted")["stack"]
    of = {name: index for index, name in enumerate(table["columns"])}
    for row in table["rows"]:
        assert runs_on(row[of["stack"]], get_device(_EXAMPLE[row[of["kind"]]])), row


def test_the_true_stack_is_among_the_alternatives() -> None:
    """Of the classes that were counted, asked bare: nearly always; its weight by family has a floor."""
    table = _file("counted")["stack"]
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    asked: dict[Any, dict[Any, float]] = {}
    for *classes, stack, _, votes, _ in table["rows"]:
        named = dict(zip(("family", "method", "kind", "scale"), classes, strict=True))
        key = tuple(classes)
        if key not in asked:
            device = get_device(_EXAMPLE[named["kind"]])
            question = Question(**named, device=device, num_devices=1 if named["scale"] == "one" else 16)
            asked[key] = {each.fields[STACK]: each.weight for each in practice(question).stacks}
        found[named["family"]].append((votes, asked[key].get(stack, 0.0)))
    cast = [pair for pairs in found.values() for pair in pairs]
    assert sum(votes for votes, weight in cast if weight > 0.0) >= 0.98 * sum(votes for votes, _ in cast)
    floors = {"vision": 0.2, "language": 0.24, "encoder": 0.25, "detection": 0.25, "speech": 0.23}
    for family, floor in floors.items():
        pairs = found[family]
        assert sum(votes * weight for votes, weight in pairs) >= floor * sum(votes for votes, _ in pairs), (
            family
        )


def test_links_between_hosts_are_those_of_the_chip() -> None:
    found = _asked(model="gpt2", device="2x8xH100")
    networks = {each.fields["network"] for each in found.points("megatron")["links"]}
    assert "8x400g-ib" in networks and not networks & {"8x200g-ib", "10g-tcp"}
    for said in (
        {"device": "8xH100"},
        {"device": "2x8xH100", "network": "efa-3200g"},
        {"device": "2x8xGaudi2"},
    ):
        assert all("links" not in points for points in _asked(model="gpt2", **said).settings.values())


def test_a_task_of_glue_is_fine_tuning() -> None:
    methods = [
        _asked(model="bert-base", device="A100", dataset=name).question.method
        for name in ("mnli", "squad", "wikitext103")
    ]
    assert methods == ["full", "full", "pretrain"]


def test_without_a_year_todays_software_is_the_usual_one(
    answers: list[tuple[dict[str, Any], Practice]],
) -> None:
    for _, found in answers:
        for points in found.settings.values():
            years = [each.fields["software"] for each in points["software"]]
            assert years[0] == max(years)
