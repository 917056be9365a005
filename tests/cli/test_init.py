"""Files to start from: valid as written, as their schemas say, and never written over."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from precision_time.cli.init import schema_of, template
from precision_time.hardware.catalog import get_cluster
from precision_time.predict.api import predict_time
from precision_time.request.files import read_requests
from precision_time.schemas.answers import answer_schema


def test_the_cluster_file_predicts(cli, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    assert cli("init", str(path)).code == 0
    answer = cli("predict", "resnet50", "-d", "my-host", "-g", "16", "--custom", str(path), "-b", "64")
    assert answer.code == 0
    assert "16 x my-gpu (4 nodes)" in answer.out
    again = cli("init", str(path))
    assert again.code == 2
    assert "--force" in again.err


def test_what_the_comments_of_the_cluster_file_offer_is_valid_too(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    offered = re.sub(r"^    # (?=[a-z_0-9]+: )", "    ", template("cluster"), flags=re.MULTILINE)
    # A torus has no topology besides; the sockets are TCP's.
    text = re.sub(r"^    (topology|torus): .*\n", "", offered, flags=re.MULTILINE).replace("roce", "tcp", 1)
    assert "sockets: 16" in text
    path.write_text(text, encoding="utf-8")
    jsonschema.validate(yaml.safe_load(text), schema_of("cluster"))
    cluster = get_cluster(node_type="my-host", num_devices=8, custom=path)
    assert cluster.inter_node.in_network_reduction
    assert cluster.inter_node.latency_s == pytest.approx(3e-6)
    assert cluster.device.peak_flops_per_s["bf16"] == pytest.approx(400e12)


def test_the_job_file_predicts(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(template("job"), encoding="utf-8")
    (request,) = read_requests(path)
    given = {name: value for name, value in request.given().items() if name != "model"}
    assert predict_time("gpt2", **given).gpus == 8


@pytest.mark.parametrize("kind", ["cluster", "job"])
def test_a_schema_takes_the_file_and_refuses_a_field_that_is_none(cli, kind: str) -> None:
    answer = cli("init", "--schema", kind)
    found = json.loads(answer.out)
    content = yaml.safe_load(template(kind))
    jsonschema.validate(content, found)
    wrong = {**content, "gpuss": 8}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, found)


def test_the_schema_of_jobs_takes_every_form_of_a_job_file() -> None:
    found = schema_of("job")
    forms = [
        {"model": "gpt2", "num_devices": 8, "zero_stage": 3, "steps": "1000"},
        [{"model": "gpt2"}, {"model": "resnet50", "batch_size": 64}],
        {"model": "gpt2", "jobs": [{"gpus": 1}, {"gpus": 8}]},
        {"model": "gpt2", "version": 1, "phases": [{"steps": 10}], "run": {"mtbf": "5000h", "spot": True}},
        yaml.safe_load((Path(__file__).parents[2] / "docs/examples/queue.yaml").read_text(encoding="utf-8")),
    ]
    for content in forms:
        jsonschema.validate(content, found)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"gpus": 8}, found)


@pytest.mark.parametrize("name", ["hardware.txt", "mine.yaml", "cluster.toml"])
def test_a_name_that_says_no_kind_is_refused_with_the_way_out(cli, tmp_path: Path, name: str) -> None:
    answer = cli("init", str(tmp_path / name))
    assert answer.code == 2
    assert "--kind cluster" in answer.err
    assert not (tmp_path / name).exists()


_FITS = "predict resnet50 -d A100 -g 8 --epochs 90"
_NOT = "predict llama3-8b -d T4 --tokens 1B"


@pytest.mark.parametrize("words", [_FITS, _NOT, f"{_FITS} -p tf32,bf16-mixed"])
def test_an_answer_is_as_its_schema_says_and_has_what_does_not_fit_apart(cli, words: str) -> None:
    brief = json.loads(cli(*words.split(), "--json=brief").out)
    whole = json.loads(cli(*words.split(), "--json").out)
    jsonschema.validate(brief, answer_schema("brief"))
    jsonschema.validate(whole, answer_schema("prediction"))
    for short, each in zip(brief["predictions"], whole["predictions"], strict=True):
        assert each["fits"] == (words != _NOT)
        assert each.get("if_it_fitted") == short.get("if_it_fitted")
        assert ("if_it_fitted" in each) == (not each["fits"])
    if words == _NOT:
        (each,) = whole["predictions"]
        assert each["if_it_fitted"]["step_time_s"] == pytest.approx(each["step_time_s"], rel=1e-5)
        each["if_it_fitted"].pop("step_time_s")
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(whole, answer_schema("prediction"))


@pytest.mark.parametrize("words", [_FITS, _NOT])
def test_a_run_is_as_its_schema_says_and_has_what_does_not_fit_apart(cli, words: str) -> None:
    run = json.loads(cli(*words.split(), "--whole-run", "--json").out)
    jsonschema.validate(run, answer_schema("run"))
    assert ("if_it_fitted" in run) == (words == _NOT)
    assert run.get("if_it_fitted", {}).get("run_s", run["total_s"]) == pytest.approx(run["total_s"], rel=1e-5)
