"""Recipes that are sent to a service: read as on the command line, within its bounds."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from starlette.testclient import TestClient

from precision_time.request.recipes import recipe_of
from precision_time_integrations.recipes.sent import SENT
from precision_time_integrations.routes import recipes as route
from precision_time_server import app
from precision_time_server.routes.page import form_fields
from precision_time_server.settings import Settings

PATH = "/v1/recipes"
PAGE = resources.files("precision_time_server") / "page"
NODE = shutil.which("node")
PUBLIC = Path(__file__).parent / "public"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service with this route, whatever else is installed."""
    store = tmp_path_factory.mktemp("service") / "service.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "loaded", lambda group: {"recipes": route.router} if group == "routes" else {})
        made = app.create_app(Settings.of({"store": f"sqlite:///{store}"}))
    with TestClient(made) as found:
        yield found


def asked(client: TestClient, **sent: Any) -> dict[str, Any]:
    answer = client.post(PATH, json=sent)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _some() -> list[Path]:
    """A public recipe of every project and ending."""
    by_kind = {(path.parent.name, path.suffix): path for path in sorted(PUBLIC.glob("*/*"), reverse=True)}
    return [path for _, path in sorted(by_kind.items())]


@pytest.mark.parametrize("path", _some(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_report_is_that_of_the_command_line(path: Path, client: TestClient) -> None:
    beside = {each.name: each.read_text() for each in path.parent.iterdir() if each.suffix == ".json"}
    sent = {"name": path.name, "text": path.read_text(), "files": dict(list(beside.items())[:16])}
    assert jsonschema_rs.validator_for(dict(SENT)).is_valid(sent)
    answer = client.post(PATH, json=sent)
    try:
        here = recipe_of(str(path))
    except Exception as error:
        assert answer.status_code == 422
        assert answer.json()["detail"].split(" To fix")[0] in " ".join(str(error).split()).replace(
            str(path), path.name
        )
        return
    assert here is not None
    assert answer.status_code == 200, answer.text
    read = {key: value for key, value in here.to_dict({}).items() if key != "source"}
    told = {key: value for key, value in answer.json()["recipe"].items() if key != "source"}
    assert told == json.loads(json.dumps(read))


def test_what_is_read_is_a_job_that_the_service_answers(client: TestClient) -> None:
    found = asked(client, **route._EXAMPLE)
    assert found["missing"] == []
    answer = client.post("/v1/predictions", json=found["job"])
    assert answer.status_code == 200, answer.text
    assert answer.json()["gpus"] == 8
    assert answer.json()["total_time_s"] > 0


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_what_the_page_asks_of_a_recipe_is_its_job(client: TestClient) -> None:
    """The texts that a job becomes in the form, sizes and switches among them, ask for the same."""
    command = (
        "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --seq-length 2048"
        " --num-attention-heads 16 --micro-batch-size 2 --global-batch-size 256 --sequence-parallel --bf16"
        " --tensor-model-parallel-size 2 --train-iters 500"
    )
    jobs = [asked(client, **sent)["job"] for sent in (route._EXAMPLE, {"text": command})]
    code = f"""
import {{ jobTexts }} from "{(Path(str(PAGE)) / "recipe-job.js").as_uri()}";
import {{ askOf }} from "{(Path(str(PAGE)) / "job.js").as_uri()}";
const fields = {json.dumps(form_fields())};
console.log(JSON.stringify({json.dumps(jobs)}.map((job) => askOf(jobTexts(job, fields, {{}}), fields))));
"""
    done = subprocess.run(
        [str(NODE), "--input-type=module", "-e", code], capture_output=True, text=True, check=True
    )
    for job, question in zip(jobs, json.loads(done.stdout), strict=True):
        assert question["path"] == "v1/predictions"
        answers = [client.post("/v1/predictions", json=each).json() for each in (job, question["body"])]
        assert answers[0]["step_time_s"] == answers[1]["step_time_s"]
        assert answers[0]["memory_bytes_per_device"] == answers[1]["memory_bytes_per_device"]


def test_fields_stand_in_the_place_of_the_recipe(client: TestClient) -> None:
    found = asked(
        client, name="a.yml", text="base_model: gpt2\nmicro_batch_size: 2\n", fields={"batch_size": 4}
    )
    assert found["job"]["batch_size"] == 4
    assert "Overridden by your options: batch_size, 2 in the recipe, is 4." in found["report"]
    assert found["missing"] == ["device"]


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [
        ({"name": "a.yml", "text": "resources: 3"}, 422, "no recipe of a project"),
        ({"name": "a.yml", "text": "base_model: &a [*a"}, 422, "not a valid .yml file"),
        ({"name": "a.py", "text": "(" * 5000}, 422, "not valid Python"),
        ({"name": "a.yml", "text": "base_model: x", "path": "/etc/passwd"}, 422, "path"),
        ({"text": "base_model: x", "fields": [1]}, 422, "fields="),
        ({"text": "torchrun a.py", "fields": {"custom": "own.yaml"}}, 422, "custom="),
        ({"text": "\ud800"}, 400, "lone surrogate"),
        ({"text": "x" * 1_000_001}, 422, "text has 1,000,001 characters"),
        ({"text": "x" * 1_100_000}, 413, "too long"),
        ({}, 422, "text="),
    ],
)
def test_what_cannot_be_read_is_refused(
    sent: dict[str, Any], status: int, words: str, client: TestClient
) -> None:
    answer = client.post(PATH, content=json.dumps(sent), headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert words in answer.json()["detail"]


def test_a_bomb_is_refused(client: TestClient) -> None:
    text = "base_model: &a [x, x]\n" + "".join(
        f"k{n}: &k{n} [{', '.join([f'*k{n - 1}' if n else '*a'] * 9)}]\n" for n in range(9)
    )
    answer = client.post(PATH, json={"name": "a.yml", "text": text})
    assert answer.status_code == 422
    assert "stands for more" in answer.json()["detail"]


def test_it_says_what_it_takes(client: TestClient) -> None:
    operation = client.get("/openapi.json").json()["paths"][PATH]["post"]
    stated = operation["requestBody"]["content"]["application/json"]
    assert jsonschema_rs.validator_for(stated["schema"]).is_valid(stated["examples"]["recipe"]["value"])
    answers = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert jsonschema_rs.validator_for(answers).is_valid(asked(client, **route._EXAMPLE))
