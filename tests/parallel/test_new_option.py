"""A new option of the layout is a field of `Layout` and its effect: added here, it is at every door."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FIELD = '    brand_new: Annotated[NaturalNumber, Varied, Option(help="Of a kind nobody has seen.")] = 0\n'
BEFORE = "    bucket_bytes: float"
PATCHED = f"""
import sys
from importlib.util import find_spec, module_from_spec
spec = find_spec("precision_time.parallel.layout")
text = spec.loader.get_source(spec.name)
assert spec.name not in sys.modules and text.count({BEFORE!r}) == 1
sys.modules[spec.name] = module = module_from_spec(spec)
exec(compile(text.replace({BEFORE!r}, {FIELD + BEFORE!r}), spec.origin, "exec"), module.__dict__)
"""
ASKED = """
import contextlib, io, json
from pathlib import Path
import precision_time
from precision_time.cli.main import main
from precision_time.launch.emit import launch_config_of
from precision_time.parallel.space import VARIED
from precision_time.planning.layouts.api import SEARCHED_FIELDS
from precision_time.request.files import read_requests
from precision_time.request.layout import fields_of, needed_fields, option_words, parse_fixed
from precision_time.request.request import Request

def cli(*words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            main(list(words))
        except SystemExit:
            pass
    return out.getvalue()

job = {"model": "gpt2", "device": "A100", "gpus": 8, "batch_size": 4}
asked = {**job, "brand_new": 3}
Path("job.json").write_text(json.dumps(asked))
Path("jobs.csv").write_text(",".join(asked) + "\\n" + ",".join(map(str, asked.values())) + "\\n")
answer = precision_time.predict_time(**asked)
made = Request.of(asked).resolve()
try:
    launch_config_of(made, "torchrun")
    emitted = "lost"
except precision_time.errors.LayoutError as error:
    emitted = str(error)
found = {
    "keyword": made.layout.brand_new,
    "nested": Request.of({**job, "layout": {"brand_new": 3}}).resolve().layout.brand_new,
    "file": [read_requests(name)[0].resolve().layout.brand_new for name in ("job.json", "jobs.csv")],
    "option": json.loads(cli("predict", "gpt2", "-d", "A100", "-g", "8", "--brand-new", "3", "--json")),
    "listed": "brand_new" in cli("list", "fields"),
    "back": fields_of(made.layout)["brand_new"],
    "words": option_words(needed_fields(made.layout, made.workload)),
    "fixed": parse_fixed(["brand_new=3,4"])["brand_new"],
    "varied": "brand_new" in VARIED and "brand_new" not in SEARCHED_FIELDS,
    "emitted": emitted,
    "step_time_s": answer.step_time_s,
}
print(json.dumps(found))
"""
PLAIN = """
import json, precision_time
print(json.dumps(precision_time.predict_time("gpt2", device="A100", gpus=8, batch_size=4).step_time_s))
"""


def run(script: str, folder: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return dict(run(PATCHED + ASKED, tmp_path_factory.mktemp("new")))


def test_a_field_of_layout_is_a_keyword_an_option_a_column_and_a_key(found: dict[str, Any]) -> None:
    assert (found["keyword"], found["nested"]) == (3, 3)
    assert found["option"]["predictions"][0]["request"]["brand_new"] == 3
    assert found["file"] == [3, 3] and found["listed"]


def test_it_is_said_fixed_and_read_back(found: dict[str, Any]) -> None:
    assert found["back"] == 3 and "--brand-new 3" in found["words"]
    assert found["fixed"] == [3, 4] and found["varied"]


def test_a_launcher_that_has_no_setting_for_it_refuses_it(found: dict[str, Any]) -> None:
    assert "no setting for brand_new=3" in found["emitted"]


def test_answers_stay_as_they_are(found: dict[str, Any], tmp_path: Path) -> None:
    assert found["step_time_s"] == run(PLAIN, tmp_path)
