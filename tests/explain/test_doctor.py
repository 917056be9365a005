"""What slows a step down: ranked causes, none of them certain, each a change of the job that has a price."""

import json
import math

import pytest

from precision_time.cost.job import Job
from precision_time.errors import ConfigError
from precision_time.explain.doctor import Diagnosis, diagnose
from precision_time.io import packaged_toml
from precision_time.request.request import Request

IMAGES = {"model": "resnet50", "device": "A100-SXM4-40GB", "batch_size": 128, "precision": "fp16-mixed"}
TOKENS = {
    "model": "llama3-8b",
    "device": "H100-SXM5-80GB",
    "gpus": 16,
    "nodes": 2,
    "zero_stage": 3,
    "batch_size": 1,
    "precision": "bf16-mixed",
    "seq_len": 4096,
}
ROWS = packaged_toml("precision_time.explain", "data/causes.toml")["cause"]


WORDS = {
    "model": "gpt2-medium",
    "device": "A100-SXM4-40GB",
    "batch_size": 8,
    "precision": "bf16-mixed",
    "seq_len": 1024,
    "compiler": "inductor",
    "attention": "flash2",
}


def times(job, **changed) -> float:
    """Of the job as it is resolved, as the doctor counts it."""
    return diagnose(**{**job, **changed}, measured_s=1e-6).predicted_s


def names(found: Diagnosis) -> list[str]:
    return [cause.name for cause in found.causes]


@pytest.mark.parametrize("job", [IMAGES, TOKENS])
def test_inside_the_interval_is_nothing_to_explain(job):
    found = diagnose(**job, measured_s=times(job))
    assert (found.verdict, found.causes, found.other) == ("as-predicted", (), 1.0)
    assert "nothing to explain" in found.in_one_line()
    assert "othing to explain" in str(found)


def test_a_step_that_is_faster_than_predicted_says_so():
    found = diagnose(**IMAGES, measured_s=times(IMAGES) / 5.0)
    assert (found.verdict, found.causes) == ("faster", ())
    assert "aster than predicted" in str(found)


@pytest.mark.parametrize("factor", [2.0, 3.0, 20.0, 1000.0])
@pytest.mark.parametrize("job", [IMAGES, TOKENS])
def test_no_number_makes_a_cause_certain(job, factor):
    found = diagnose(**job, measured_s=factor * times(job))
    assert found.verdict == "slower"
    whole = [cause.probability for cause in found.causes]
    assert math.fsum([*whole, found.other]) == pytest.approx(1.0)
    assert whole == sorted(whole, reverse=True)
    assert max(whole) < 0.9
    assert found.other > 0.01
    assert len(set(names(found))) == len(found.causes) >= 8


def test_a_cause_has_the_time_of_the_job_that_it_is_the_change_to():
    measured_s = times(IMAGES, precision="fp32")
    found = {cause.name: cause for cause in diagnose(**IMAGES, measured_s=measured_s).causes}
    precision = found["precision"]
    assert precision.change == "precision=fp32"
    assert precision.step_time_s == pytest.approx(measured_s, rel=1e-6)
    assert precision.low_s < measured_s < precision.high_s
    assert found["accumulation"].change.startswith("num_microbatches x ")


@pytest.mark.parametrize(
    ("job", "change", "cause"),
    [
        (IMAGES, {"precision": "fp32"}, "precision"),
        (IMAGES, {"num_microbatches": 8}, "accumulation"),
        (IMAGES, {"input_rate": 200.0}, "input"),
        (WORDS, {"compiler": "none"}, "compile"),
        (WORDS, {"attention": "math"}, "attention"),
        (WORDS, {"recompute": "full"}, "recompute"),
        (TOKENS, {"network": "10g-tcp"}, "network"),
        (TOKENS, {"offload": "parameters"}, "offload"),
    ],
)
def test_the_time_under_a_cause_makes_it_more_probable_than_a_time_that_it_cannot_take(job, change, cause):
    def probability(measured_s):
        causes = diagnose(**{**job, "coverage": 0.5}, measured_s=measured_s).causes
        return {each.name: each.probability for each in causes}[cause]

    near_s = diagnose(**{**job, **change}, measured_s=1e-6).predicted_s
    assert probability(near_s) > probability(100.0 * near_s)


def test_tensors_in_memory_do_not_wait_for_a_loader():
    for stated in ({"loader": "synthetic"}, {"real_input": False}):
        assert "input" not in names(diagnose(**IMAGES, **stated, measured_s=10.0))
    assert "input" in names(diagnose(**IMAGES, measured_s=10.0))


def test_what_a_job_has_anyway_is_no_cause():
    for change, cause in (({"precision": "fp32"}, "precision"), ({"offload": "optimizer"}, "offload")):
        assert cause not in names(diagnose(**{**WORDS, **change}, measured_s=100.0))


def test_a_slow_network_between_hosts_is_first_where_nothing_else_takes_as_long():
    assert names(diagnose(**TOKENS, measured_s=times(TOKENS, network="10g-tcp")))[0] == "network"
    one = {**TOKENS, "gpus": 8, "nodes": 1}
    assert "network" not in names(diagnose(**one, measured_s=10.0 * times(one)))


def test_symptoms_move_the_ranking():
    measured_s = 4.0 * times(IMAGES)
    bare = diagnose(**IMAGES, measured_s=measured_s)
    waits = diagnose(**IMAGES, measured_s=measured_s, data_wait_s=0.7 * measured_s)
    busy = diagnose(**IMAGES, measured_s=measured_s, utilization=0.99)
    never_waits = diagnose(**IMAGES, measured_s=measured_s, data_wait_s=0.0)

    def of(found):
        return next(each.probability for each in found.causes if each.name == "input")

    assert names(waits)[0] == "input"
    assert of(waits) > of(bare) > of(busy)
    assert of(bare) > of(never_waits) > 0.0


def test_a_symptom_is_weighed_where_the_time_is_as_predicted():
    found = diagnose(**IMAGES, measured_s=times(IMAGES), data_wait_s=0.3 * times(IMAGES))
    assert found.verdict == "as-predicted"
    assert found.causes


def test_what_the_user_states_is_less_often_otherwise():
    silent = {name: value for name, value in IMAGES.items() if name != "precision"}
    assumed = Request(**silent).resolve().precision.name
    measured_s = 3.0 * times(silent)

    def of(job):
        return next(
            c.probability for c in diagnose(**job, measured_s=measured_s).causes if c.name == "precision"
        )

    if assumed != "fp32":
        assert of(silent) > of({**silent, "precision": assumed})


def test_a_cause_under_which_the_job_would_not_fit_is_not_weighed():
    small, large = ({**WORDS, "batch_size": size} for size in (4, 24))
    assert "attention" in names(diagnose(**small, measured_s=100.0))
    assert "attention" not in names(diagnose(**large, measured_s=100.0))


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"measured_s": 0.0}, "above 0"),
        ({"measured_s": math.nan}, "above 0"),
        ({"measured_s": 1.0, "data_wait_s": 2.0}, "between 0 and"),
        ({"measured_s": 1.0, "data_wait_s": -1.0}, "between 0 and"),
        ({"measured_s": 1.0, "utilization": 35.0}, "between 0 and 1"),
    ],
)
def test_what_cannot_be_is_refused(told, words):
    with pytest.raises(ConfigError, match=words):
        diagnose(**IMAGES, **told)


def test_as_json():
    found = diagnose(**IMAGES, measured_s=1.0)
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["verdict"] == "slower"
    assert told["ratio"] == pytest.approx(found.ratio)
    assert [cause["name"] for cause in told["causes"]] == names(found)
    assert "what_could" not in told


def test_the_page_shows_five_and_why_all():
    found = diagnose(**IMAGES, measured_s=1.0)
    page, whole = str(found), "\n".join(str(block) for block in found.blocks(why=True))
    assert found.causes[0].check.split()[0] in page
    assert "something that is not listed here" in page
    assert f"{len(found.causes) - 5} more" in page
    assert all(cause.what in whole for cause in found.causes)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_every_cause_is_a_change_with_a_check(row):
    assert row["what"]
    assert row["check"].endswith(".")
    assert 0.0 < row["weight"] < 1.0
    assert row.get("idle", False) in (True, False, "input")
    sizes = [name for name in ("changes", "multiples", "hardware", "slower") if row.get(name)]
    assert sizes
    for change in [*row.get("changes", ()), *row.get("multiples", ())]:
        assert all(hasattr(Request(**IMAGES), name) for name in change)
    job = Request(**IMAGES).resolve()
    for name in [*row.get("where", {}), *row.get("above", {})]:
        value = job
        for part in name.split("."):
            value = getattr(value, part)
    assert isinstance(job, Job)


def test_rows_of_one_cause_say_the_same_of_it():
    for name in {row["name"] for row in ROWS}:
        said = {(row["what"], row["weight"], row.get("idle", False)) for row in ROWS if row["name"] == name}
        assert len(said) == 1
