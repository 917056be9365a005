"""A table of measured runs, scored as `precision-time evaluate --json` scores it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from precision_time.errors import CorpusError
from precision_time.learn.evaluation import evaluate_csv
from precision_time_server.measured_rows import table_rows

TABLE = """\
model,device,gpus,batch_size,precision,step_time_s
resnet50,A100-SXM4-80GB,8,256,bf16-mixed,0.31
bert-base,A100-SXM4-80GB,1,32,fp32,0.2
no-such-model,A100-SXM4-80GB,1,32,fp32,0.2
resnet50,LabGPU,1,32,bf16-mixed,0.05
"""
ODD_SIZE = """\
model,device,gpus,batch_size,model_config,step_time_s
resnet50,T4,1,32,,0.2
resnet50,T4,1,32,"{""image_size"":1e400}",0.2
"""
HARDWARE = {"device": {"LabGPU": {"base": "A100-SXM4-80GB", "memory_gb_per_s": 1000}}}
CSV = {"content-type": "text/csv"}


def test_the_same_as_the_command_line(client: TestClient, tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    file.write_text(TABLE)
    for query, options in (
        ({}, {}),
        ({"group_by": ["model", "precision"]}, {"group_by": ("model", "precision")}),
        ({"device": "H100-SXM5-80GB"}, {"device": "H100-SXM5-80GB"}),
    ):
        answer = client.post("/v1/evaluations", content=TABLE, headers=CSV, params=query)
        assert answer.status_code == 200, answer.text
        assert _rounded(answer.text) == _rounded(json.dumps(evaluate_csv(file, **options).to_dict()))


def _rounded(text: str) -> Any:
    """Another process may add up in another order (what it imported decides): last digits may differ."""
    return json.loads(text, parse_float=lambda number: f"{float(number):.10g}")


def test_hardware_of_a_cluster(client: TestClient) -> None:
    client.put("/v1/clusters/lab", json={"hardware": HARDWARE}).raise_for_status()
    without = client.post("/v1/evaluations", content=TABLE, headers=CSV).json()
    found = client.post("/v1/evaluations?cluster=lab", content=TABLE, headers=CSV).json()
    assert (without["n"], found["n"]) == (2, 3)
    assert client.post("/v1/evaluations?cluster=no", content=TABLE, headers=CSV).status_code == 404


@pytest.mark.parametrize(
    ("table", "status", "text"),
    [
        (TABLE.replace("bf16-mixed", "/etc/policy.yaml"), 422, "is a file"),
        (TABLE.replace("resnet50", "evil:module"), 200, ""),
        (TABLE.replace("resnet50", "config.json"), 200, "code or a file"),
        ("a,b\n1,2\n", 422, "column 'model' is missing"),
        ("", 422, "empty"),
        (b"\xff\xff\xff\xff", 400, "UTF-8"),
        (TABLE.replace("0.31", "nan"), 200, "line 2: step_time_s='nan' is not a finite number"),
        (TABLE.partition("bert")[0].replace("0.31", "nan"), 422, "finite"),
        (ODD_SIZE, 200, "not JSON of finite numbers"),
        (TABLE + '"', 422, "CSV"),
    ],
)
def test_tables_that_are_none(client: TestClient, table: str | bytes, status: int, text: str) -> None:
    answer = client.post("/v1/evaluations", content=table, headers=CSV)
    assert answer.status_code == status and text in answer.text, answer.text


def test_limits(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.post("/v1/evaluations", json={}).status_code == 415
    with pytest.raises(CorpusError, match="more than 3 rows"):
        table_rows(TABLE, most=3)
