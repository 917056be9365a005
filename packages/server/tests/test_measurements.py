"""Measured steps of a cluster: checked, stored as given, learned from, and never silently used."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from precision_time.testing.jobs import own_job_s
from precision_time_server import clusters as clusters_module
from precision_time_server import learning
from precision_time_server.problems import ConflictError

FIELDS = {"device": "A100-SXM4-80GB", "gpus": 4}
JOBS = [
    {"model": model, "batch_size": batch, "precision": precision}
    for model, batch, precision in product(("resnet50", "vit-b-16"), (16, 32, 64), ("tf32", "bf16-mixed"))
]
ASKED = {"model": "resnet50", "batch_size": 48, "precision": "bf16-mixed", "stack": "pytorch-eager"}
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def usual_s(client: TestClient) -> list[float]:
    """What the predictor that ships says of JOBS."""
    client.put("/v1/clusters/plain", json={"fields": FIELDS}).raise_for_status()
    return [own_job_s(**{**FIELDS, **job}) for job in JOBS]


@pytest.fixture
def cluster(client: TestClient) -> Iterator[str]:
    """A cluster without measurements."""
    client.put("/v1/clusters/pod", json={"fields": FIELDS}).raise_for_status()
    yield "/v1/clusters/pod"
    client.delete("/v1/clusters/pod")


def rows_of(times_s: list[float]) -> Rows:
    return [{**job, "step_time_s": time} for job, time in zip(JOBS, times_s, strict=False)]


def step_s(client: TestClient, name: str = "pod", **fields: Any) -> float:
    answer = client.post("/v1/predictions", json={**ASKED, **fields, "cluster": name})
    assert answer.status_code == 200, answer.text
    return float(answer.json()["step_time_s"])


def added(client: TestClient, cluster: str, rows: Rows, **query: str) -> dict[str, Any]:
    answer = client.post(f"{cluster}/measurements", json={"measurements": rows}, params=query)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_known_factor_is_learned_and_said(client: TestClient, cluster: str, usual_s: list[float]) -> None:
    before_s = step_s(client)
    rows = rows_of([1.3 * time for time in usual_s])

    quiet = added(client, cluster, rows[:6])
    assert quiet["calibration"] == {"id": None, "active": False, "why": "Not asked to be kept."}
    assert step_s(client) == before_s  # told, not used

    found = added(client, cluster, rows[6:], activate="if-better")
    learned = found["learned"]
    assert found["calibration"]["active"] and learned["configurations"] == len(JOBS)
    # Of the medians, a little above the times that are answered.
    assert learned["before"]["mape_percent"] == pytest.approx(100.0 * (1.0 - 1.0 / 1.3), rel=0.1)
    assert learned["after"]["mape_percent"] < 5.0
    # Before, the answer was the middle of what the question leaves open.
    assert 1.2 < step_s(client) / before_s < 1.45

    # The next rows tell how good the answers since then were, before they are learned from.
    since = added(client, cluster, [{**ASKED, "step_time_s": 1.3 * before_s}])["learned"]["since_active"]
    assert since["rows"] == 1
    assert since["answered"]["mape_percent"] < 10.0 < since["without"]["mape_percent"]

    # Every version is kept, any can be chosen, and none too.
    client.put(f"{cluster}/calibrations/active", json={"id": None}).raise_for_status()
    assert step_s(client) == before_s
    number = found["calibration"]["id"]
    client.put(f"{cluster}/calibrations/active", json={"id": number}).raise_for_status()
    assert step_s(client) > 1.2 * before_s
    assert step_s(client, "plain") == before_s  # a cluster of its own


@pytest.mark.parametrize("seed", range(4))
def test_noise_does_not_become_active(
    client: TestClient, cluster: str, usual_s: list[float], seed: int
) -> None:
    noise = np.exp(np.random.default_rng(seed).normal(0.0, 0.3, len(usual_s)))
    found = added(client, cluster, rows_of([*(usual_s * noise)]), activate="if-better")
    assert not found["learned"]["better"] and not found["calibration"]["active"]
    assert "chance" in found["calibration"]["why"]
    [version] = client.get(f"{cluster}/calibrations").json()["calibrations"]
    assert version["id"] == found["calibration"]["id"] and not version["active"]


def test_few_rows_do_not_tell_but_may_be_forced(
    client: TestClient, cluster: str, usual_s: list[float]
) -> None:
    before_s = step_s(client)
    few = added(client, cluster, rows_of([2.0 * time for time in usual_s[:2]]), activate="if-better")
    assert "fewer than 5" in few["calibration"]["why"] and step_s(client) == before_s
    answer = client.post(f"{cluster}/calibrations", json={}, params={"activate": "always"})
    assert answer.status_code == 201 and answer.json()["calibration"]["active"]
    assert step_s(client) > 1.2 * before_s


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"model": "resnet50"}, "step_time_s or samples_per_s is missing"),
    ({"step_time_s": 0.1}, "model is missing"),
    ({**ASKED, "batchsize": 3, "step_time_s": 0.1}, "Did you mean batch_size"),
    ({**ASKED, "precision": "/etc/policy.toml", "step_time_s": 0.1}, "names no files"),
    ({**ASKED, "custom": "/etc/passwd", "step_time_s": 0.1}, "names no files"),
    ({**ASKED, "model": "config.json", "step_time_s": 0.1}, "code or a file"),
    ({**ASKED, "gpus": -1, "step_time_s": 0.1}, "at least 1"),
    ({**ASKED, "step_time_s": -0.1}, "negative"),
    ({**ASKED, "step_time_s": "soon"}, "not a number"),
    ({**ASKED, "step_time_s": 1e-9}, "faster than the roofline"),
    ({**ASKED, "step_time_s": 1e9}, "a million times"),
    ({**ASKED, "anchors": 3, "step_time_s": 0.1}, "objects of fields"),
    ({**ASKED, "coverage": 0.5, "step_time_s": 0.1}, "nothing of a measured step"),
]


def test_every_broken_row_is_named_and_nothing_is_stored(client: TestClient, cluster: str) -> None:
    good = {**ASKED, "step_time_s": 0.05}
    unknown = {**ASKED, "model": "no-such-model", "step_time_s": 0.05}
    rows = [good, *(row for row, _ in BROKEN), unknown]
    answer = client.post(f"{cluster}/measurements", json={"measurements": rows})
    problem = answer.json()
    assert answer.status_code == 422 and answer.headers["content-type"] == "application/problem+json"
    assert [each["index"] for each in problem["broken"]] == [*range(1, len(BROKEN) + 1)]
    for each, (_, text) in zip(problem["broken"], BROKEN, strict=True):
        assert text in each["detail"], each
    assert client.get(f"{cluster}/measurements").json()["count"] == 0

    found = added(client, cluster, rows, partial="true")
    assert (found["stored"], found["priced"], len(found["broken"])) == (2, 1, len(BROKEN))
    assert sum(found["unpriced"].values()) == 1
    assert client.get(f"{cluster}/measurements").json()["count"] == 2


_VALUES = st.one_of(st.none(), st.floats(0.02, 2.0), st.just("0.5"))
_STORED = st.fixed_dictionaries(
    {"model": st.sampled_from(["resnet50", "nobody-knows-it"]), "step_time_s": st.floats(0.02, 2.0)},
    optional={
        "batch_size": st.one_of(st.integers(1, 64), st.just("16")),
        "precision": st.sampled_from(["bf16-mixed", "fp32"]),
        "notes": st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
        "run_id": st.text("abc", max_size=3),
        "sync_time_s": _VALUES,
        "channels_last": st.booleans(),
        "sizes": st.just({"num_classes": 10}),
    },
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(_STORED, min_size=1, max_size=3))
def test_rows_come_back_as_given(client: TestClient, cluster: str, rows: list[Mapping[str, Any]]) -> None:
    answer = client.post(f"{cluster}/measurements", params={"partial": "true"}, json={"measurements": rows})
    assert answer.status_code in (201, 422), answer.text
    broken = {each["index"] for each in answer.json()["broken"]}
    kept = [dict(row) for index, row in enumerate(rows) if index not in broken]
    ids = answer.json().get("ids", [])
    assert len(ids) == len(kept)
    if ids:
        page = client.get(f"{cluster}/measurements", params={"after": ids[0] - 1}).json()["measurements"]
        assert [each["given"] for each in page] == kept
        assert all(each["defaults"] == FIELDS for each in page)


def test_tables_and_retries(client: TestClient, cluster: str) -> None:
    table = (
        "model,batch_size,precision,step_time_s,notes\n"
        "resnet50,16,bf16-mixed,0.02,a\n"
        "resnet50,32,tf32,0.08,\n"
    )
    headers = {"content-type": "text/csv; charset=utf-8", "Idempotency-Key": "once"}
    ids = []
    for _ in range(2):
        answer = client.post(f"{cluster}/measurements", content=table, headers=headers)
        assert answer.status_code == 201, answer.text
        ids.append(answer.json()["ids"])
    assert ids[0] == ids[1]
    page = client.get(f"{cluster}/measurements", params={"limit": 1}).json()
    assert page["count"] == 2 and page["next"] == ids[0][0]
    assert page["measurements"][0]["given"] == {
        "model": "resnet50", "batch_size": "16", "precision": "bf16-mixed", "step_time_s": "0.02",
        "notes": "a",
    }  # fmt: skip

    # As `precision-time measure` writes them.
    corpus = (
        "source,model,device,gpus,precision,batch_size,step_time_s,timing_scope,seq_len\n"
        "lab,resnet50,A100-SXM4-80GB,1,fp16-mixed,64,0.05,full-step,\n"
    )
    answer = client.post(f"{cluster}/measurements", content=corpus, headers={"content-type": "text/csv"})
    assert answer.status_code == 201 and answer.json()["priced"] == 1, answer.text


def test_rows_of_an_uploaded_model(client: TestClient, cluster: str) -> None:
    config = {
        "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8,
        "num_attention_heads": 16, "vocab_size": 32000,
    }  # fmt: skip
    answer = client.post(
        "/v1/models?kind=hf-config", content=json.dumps(config), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 201, answer.text
    row = {"model": answer.json()["name"], "batch_size": 8, "step_time_s": 1.3}
    inline = {**row, "model": config, "seq_len": 512}
    found = added(client, cluster, [row, inline, {**row, "seq_len": 512}])
    assert found["priced"] == 2
    [reason] = found["unpriced"]  # it has the length that it was uploaded with
    assert "seq_len=512 does not apply" in reason
    client.delete(f"/v1/models/{row['model'].removeprefix('uploads/')}").raise_for_status()
    found = client.post(f"{cluster}/calibrations", json={}).json()["learned"]
    assert found["rows"] == 1 and sum(found["unpriced"].values()) == 2


def test_many_writers_at_once(client: TestClient, cluster: str) -> None:
    def write(writer: int) -> list[int]:
        row = {**ASKED, "step_time_s": 0.05, "run_id": str(writer // 2)}
        key = {"Idempotency-Key": f"run {writer // 2}"}  # each is sent twice
        answer = client.post(f"{cluster}/measurements", json={"measurements": [row]}, headers=key)
        assert answer.status_code == 201, answer.text
        found: list[int] = answer.json()["ids"]
        return found

    with ThreadPoolExecutor(6) as threads:
        ids = [*threads.map(write, range(6))]
    assert ids[0::2] == ids[1::2] and len({number for each in ids for number in each}) == 3
    page = client.get(f"{cluster}/measurements").json()["measurements"]
    assert sorted(each["given"]["run_id"] for each in page) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"\xff\xfe", "text/csv", 400),
        (b"model,model\nresnet50,resnet50\n", "text/csv", 422),
        (b"model,step_time_s\nresnet50\n", "text/csv", 422),
        (b"", "text/csv", 422),
        (b'{"measurements": []}', "application/json", 422),
        (b'{"measurements": [1]}', "application/json", 422),
        (b'{"measurements": [{"model": "resnet50", "step_time_s": NaN}]}', "application/json", 400),
        (b'{"rows": []}', "application/json", 422),
        (b"<rows/>", "application/xml", 415),
    ],
)
def test_bodies_that_are_no_rows(
    client: TestClient, cluster: str, content: bytes, kind: str, status: int
) -> None:
    answer = client.post(f"{cluster}/measurements", content=content, headers={"content-type": kind})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert client.get(f"{cluster}/measurements").json()["count"] == 0


def test_unknown_clusters_keys_and_parameters(client: TestClient, cluster: str) -> None:
    row = {"measurements": [{**ASKED, "step_time_s": 0.05}]}
    assert client.post("/v1/clusters/nobody/measurements", json=row).status_code == 404
    assert client.get("/v1/clusters/nobody/measurements").status_code == 404
    answer = client.post(f"{cluster}/measurements", json=row, headers={"Idempotency-Key": "x" * 201})
    assert answer.status_code == 400
    answer = client.post(f"{cluster}/measurements?activate=perhaps", json=row)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


def test_stored_though_nothing_could_be_learned(
    client: TestClient, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def given_up(name: str, service: Any) -> Any:
        raise ConflictError("given up")

    async def too_long(name: str, service: Any) -> Any:
        await asyncio.sleep(30.0)

    module = "precision_time_server.routes.measurements"
    row = {**ASKED, "step_time_s": 0.05}
    monkeypatch.setattr(f"{module}.learned", given_up)
    found = added(client, cluster, [row], activate="always")
    assert found["stored"] == 1 and found["learned"] is None and found["problem"]["detail"] == "given up"
    monkeypatch.setattr(f"{module}.learned", too_long)
    monkeypatch.setattr(f"{module}._left_s", lambda service, started_s: 0.01)
    found = added(client, cluster, [row], activate="always")
    assert found["stored"] == 1 and found["problem"]["status"] == 504
    assert not found["calibration"]["active"]
    assert client.get(f"{cluster}/measurements").json()["count"] == 2


def test_deleted_while_it_was_learned_from(
    client: TestClient, cluster: str, monkeypatch: pytest.MonkeyPatch, usual_s: list[float]
) -> None:
    added(client, cluster, rows_of(usual_s)[:2])
    before = clusters_module.learned

    async def meanwhile(name: str, service: Any) -> learning.Learned:
        found = await before(name, service)
        service.store.delete_cluster(name)
        service.store.put_cluster(name, {"fields": {}, "anchors": [], "hardware": None, "note": ""})
        return found

    monkeypatch.setattr("precision_time_server.routes.calibrations.learned", meanwhile)
    answer = client.post(f"{cluster}/calibrations", json={}, params={"activate": "always"})
    assert answer.status_code == 409 and "deleted" in answer.json()["detail"]
    assert client.get(f"{cluster}/calibrations").json() == {"calibrations": []}


def test_an_older_fit_does_not_replace_a_later_one(
    client: TestClient, cluster: str, monkeypatch: pytest.MonkeyPatch, usual_s: list[float]
) -> None:
    rows = rows_of([1.3 * time for time in usual_s])
    added(client, cluster, rows[:6])
    before, later = clusters_module.learned, {}

    async def overtaken(name: str, service: Any) -> learning.Learned:
        found = await before(name, service)
        monkeypatch.setattr("precision_time_server.routes.calibrations.learned", before)
        answer = TestClient(client.app)  # another caller, whose fit has all rows
        thread = threading.Thread(
            target=lambda: later.update(added(answer, cluster, rows[6:], activate="always"))
        )
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.01)
        return found

    monkeypatch.setattr("precision_time_server.routes.calibrations.learned", overtaken)
    kept = client.post(f"{cluster}/calibrations", json={}, params={"activate": "always"}).json()[
        "calibration"
    ]
    assert not kept["active"] and "later measurements" in kept["why"]
    active = [
        each["id"] for each in client.get(f"{cluster}/calibrations").json()["calibrations"] if each["active"]
    ]
    assert active == [later["calibration"]["id"]]
