"""The page as it is served, and the texts that it gives to take away."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from precision_time.cli.request_options import requests_in_words
from precision_time.errors import PrecisionTimeError
from precision_time.predict.api import predict, predict_time
from precision_time.request.files import read_requests
from precision_time.units import format_duration
from precision_time_server.jobs import job_fields
from precision_time_server.routes.page import form_fields, page

PAGE = Path(__file__).parents[1] / "src/precision_time_server/page"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")
BUDGET_BYTES = 300_000

CONFIG = {
    "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
    "intermediate_size": 2048, "vocab_size": 32000, "num_key_value_heads": 8, "max_position_embeddings": 1024,
    "note": "it's $HOME \"quoted\" \\ ünï",
}  # fmt: skip
STATES: Mapping[str, Mapping[str, str]] = {
    "name alone": {"model": "resnet18"},
    "several precisions": {
        "model": "resnet50", "device": "8xA100", "precision": "bf16-mixed,fp32", "epochs": "90",
    },
    "sizes and layout": {
        "model": "gpt2", "sizes": "hidden=1024, layers=8, heads=16, tied=false",
        "device": "H100-SXM5-80GB", "gpus": "8", "tp": "2",
        "seq_len": "1k", "batch_size": "4", "sequence_parallel": "false",
        "recompute": "full", "recompute_layers": "0.5", "tokens": "300B", "precision": "fp8-mixed",
        "network": "400g-ib",
    },
    "a list in one text": {
        "model": "gpt2", "gpus": "4", "pp": "4", "stage_layers": "2,4,3x2", "num_microbatches": "8",
        "batch_size": "1", "packing": "true", "coverage": "0.5",
    },
    "a pasted configuration": {"config": json.dumps(CONFIG), "batch_size": "2", "attention": "flash2"},
}  # fmt: skip
_WRITE = """
import { FORMS, textOf } from "%(page)s/copy.js";
import { askOf } from "%(page)s/job.js";
import { readFileSync } from "node:fs";
const { states, fields } = JSON.parse(readFileSync(0, "utf8"));
const written = (state) => Object.fromEntries([
  ...Object.keys(FORMS).map((form) => [form, textOf(form, state, fields, "http://localhost:8400/", false)]),
  ["ask", askOf(state, fields)],
]);
const all = Object.entries(states).map(([name, state]) => [name, written(state)]);
console.log(JSON.stringify(Object.fromEntries(all)));
"""


@pytest.fixture(scope="module")
def written() -> dict[str, dict[str, Any]]:
    """What the page's own modules write of every state."""
    assert NODE is not None
    code = _WRITE % {"page": PAGE.as_uri()}
    given = json.dumps({"states": STATES, "fields": form_fields()})
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", code], input=given, capture_output=True, text=True, check=True
    )
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def steps_s(answers: Any) -> list[float]:
    return [each.step_time_s for each in answers]


@needs_node
@pytest.mark.parametrize("name", STATES)
def test_what_is_copied_runs_and_answers_as_the_page(
    name: str, written: dict[str, dict[str, Any]], client: TestClient, tmp_path: Path, monkeypatch: Any
) -> None:
    texts = written[name]
    monkeypatch.chdir(tmp_path)
    if texts["ask"]["path"] == "v1/comparisons":
        job = {key: value for key, value in texts["ask"]["body"].items() if key != "precisions"}
        asked = [{**job, "precision": each} for each in texts["ask"]["body"]["precisions"]]
    else:
        asked = [texts["ask"]["body"]]
    answers = [client.post("/v1/predictions", json=each) for each in asked]
    assert all(each.status_code == 200 for each in answers), [each.text for each in answers]
    expected = [each.json()["step_time_s"] for each in answers]

    command = texts["command"]
    if command.startswith("cat "):
        # The shell itself writes the file: what stands in it must survive quoting.
        before, command = command.rsplit("\n", 1)
        subprocess.run(["sh", "-c", before], check=True, cwd=tmp_path)
        assert json.loads((tmp_path / "config.json").read_text(encoding="utf-8")) == CONFIG
    words = shlex.split(command)
    assert words[:2] == ["precision-time", "predict"]
    assert steps_s(predict(each) for each in requests_in_words(words[2:])) == expected

    shown: list[Any] = []
    exec(texts["python"], {"print": shown.append})
    [answer] = shown
    assert steps_s(answer if len(expected) > 1 else [answer]) == expected

    (tmp_path / "job.yaml").write_text(texts["file"], encoding="utf-8")
    assert steps_s(predict(each) for each in read_requests(tmp_path / "job.yaml")) == expected

    call = shlex.split(texts["curl"].replace("\\\n", ""))
    assert call[2] == f"http://localhost:8400/{texts['ask']['path']}"
    assert json.loads(call[call.index("-d") + 1]) == texts["ask"]["body"]


@needs_node
def test_modules() -> None:
    assert NODE is not None
    tests = Path(__file__).with_name("page.test.mjs")
    done = subprocess.run([NODE, "--test", str(tests)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]


@needs_node
def test_long_times_are_said_as_on_the_command_line() -> None:
    seconds = [120.0, 7199.9, 7200.0, 12_345.6, 86_400.0, 172_799.0, 172_800.0, 3_036_000.0, 8e7]
    code = f"""
import {{ duration }} from "{PAGE.as_uri()}/format.js";
console.log(JSON.stringify({seconds}.map(duration)));
"""
    assert NODE is not None
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", code], capture_output=True, text=True, check=True
    )
    expected = [re.sub(r" 0 \w+$", "", format_duration(each)) for each in seconds]
    assert expected[3:5] == ["3 h 25 min", "24 h"]
    assert json.loads(done.stdout) == expected


_WRONG: Mapping[str, dict[str, Any]] = {
    "batch_size": {"batch_size": -3}, "gpus": {"gpus": "x"}, "zero_stage": {"zero_stage": 9},
    "schedule": {"schedule": "ff"}, "device": {"device": "H1000"}, "precision": {"precision": "bf17"},
    "tp": {"tp": 3, "gpus": 8}, "network": {"network": "foo"},
    "stack": {"stack": "zz"}, "epochs": {"epochs": -1},
    "sizes": {"sizes": {"hiden": 3}}, "steps": {"epochs": 1, "steps": 3},
}  # fmt: skip


@needs_node
def test_a_problem_stands_at_the_field_that_it_names() -> None:
    said = {"model": "Unknown model 'zz'."}
    for name, fields in _WRONG.items():
        with pytest.raises(PrecisionTimeError) as error:
            predict_time("resnet50", **fields)
        said[name] = str(error.value)
    names = ["model", "precision", "cluster", *(field["name"] for field in form_fields())]
    code = f"""
import {{ fieldOf }} from "{PAGE.as_uri()}/problems.js";
import {{ readFileSync }} from "node:fs";
const {{ said, names }} = JSON.parse(readFileSync(0, "utf8"));
const found = Object.entries(said).map(([name, message]) => [name, fieldOf({{ message }}, names)]);
console.log(JSON.stringify(Object.fromEntries(found)));
"""
    assert NODE is not None
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", code],
        input=json.dumps({"said": said, "names": names}), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == {name: name for name in said}


def test_the_index_and_all_it_names_are_served_as_what_they_are(client: TestClient) -> None:
    index = client.get("/")
    assert index.status_code == 200 and index.headers["cache-control"] == "no-cache"
    named = re.findall(r'(?:src|href)="(static/[^"]+)"', index.text)
    assert {"app.js", "fields.js", "style.css", "theme.js", "preact.js"} <= {
        path.rsplit("/", 1)[1] for path in named
    }
    for path in named:
        answer = client.get(f"/{path}")
        assert answer.status_code == 200, path
        kind = {
            "js": "text/javascript",
            "css": "text/css",
            "svg": "image/svg+xml",
            "json": "application/json",
        }
        assert answer.headers["content-type"].startswith(kind[path.rsplit(".", 1)[1]])
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "immutable" in answer.headers["cache-control"]
    imported = re.compile(r'(?:from|import)\s*"(\.[^"]+)"')
    for name, file in page().files.items():
        for found in imported.findall(file.content.decode()) if name.endswith(".js") else ():
            assert _normal((Path("/") / name).parent / found) in page().files, (name, found)


def _normal(path: Path) -> str:
    parts: list[str] = []
    for part in path.parts[1:]:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)


def test_nothing_from_elsewhere_can_run_or_be_asked(client: TestClient) -> None:
    policy = dict(
        part.strip().split(" ", 1) for part in client.get("/").headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == policy["style-src"] == "'self'"
    assert "unsafe" not in str(policy) and policy["require-trusted-types-for"] == "'script'"
    for name, file in (("index.html", page().index), *page().files.items()):
        text = file.content.decode().replace("http://www.w3.org/", "")  # names of vocabularies, never asked
        assert not re.search(r"""["'(]\s*(https?:)?//\w""", text), name
        assert "innerHTML" not in text or name.startswith("vendor/"), name
    index = page().index.content.decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|style=", index), "nothing inline"


def test_caches_ask_once_and_never_get_what_is_old(client: TestClient) -> None:
    index = client.get("/")
    again = client.get("/", headers={"If-None-Match": f'"other", W/{index.headers["etag"]}'})
    assert again.status_code == 304 and not again.content
    assert client.get("/", headers={"If-None-Match": '"other"'}).status_code == 200
    version, file = page().version, page().files["app.js"]
    packed = client.get(f"/static/{version}/app.js", headers={"Accept-Encoding": "gzip"})
    plain = client.get(f"/static/{version}/app.js", headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
    assert packed.content == plain.content == file.content == gzip.decompress(file.compressed)
    assert packed.headers["vary"] == "Accept-Encoding"
    climbing = (f"{version}/../routes/page.py", f"{version}/..%2f..%2fapp.py", f"{version}//etc/passwd")
    not_served = (f"{version}/package.json", f"{version}/vendor/SHA256SUMS", "0/app.js", f"{version}/")
    for path in (*climbing, *not_served):
        assert client.get(f"/static/{path}").status_code == 404, path


def test_a_first_visit_loads_less_than_300_kb() -> None:
    assert 0 < page().compressed_bytes < BUDGET_BYTES


def test_the_form_has_every_field_that_a_job_may_have() -> None:
    apart = {"model", "precision", "anchors", "cluster"}  # these the form has in another way
    assert {field["name"] for field in form_fields()} == job_fields() - apart
    assert all(field["help"] and field["kind"] and field["flag"].startswith("--") for field in form_fields())


def test_vendored_files_are_those_that_were_checked_against_the_lock() -> None:
    folder = PAGE / "vendor"
    sums = dict(line.split("  ")[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert sums == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "SHA256SUMS"
    }
    lock = json.loads((PAGE / "package-lock.json").read_text())["packages"]
    assert all(entry["integrity"].startswith("sha512-") for name, entry in lock.items() if name)
    packages = [name.split("node_modules/")[1].removeprefix("@").replace("/", "-") for name in lock if name]
    assert {f"LICENSE-{package}" for package in packages} <= sums.keys()
