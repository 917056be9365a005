"""The webhook and a real API server of Kubernetes (see conftest.py)."""

from __future__ import annotations

import base64
import copy
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from precision_time_integrations.kubernetes import annotate, estimate, write_documents

from .conftest import ApiServer, Served, make_pair, wait_for
from .shapes import published
from .test_manifests import DEADLINES, DOCUMENTS

ROOT = Path(__file__).parents[4]
JOBS = "/apis/batch/v1/namespaces/{}/jobs"
PREFIX = "precision-time.dev/"


def job(name: str = "resnet50", **spec: Any) -> dict[str, Any]:
    found = yaml.safe_load(
        (ROOT / "packages/integrations/examples/kubernetes/job.yaml").read_text(encoding="utf-8")
    )
    found["metadata"]["name"] = name
    found["spec"] |= spec
    return dict(found)


def webhook(url: str, authority: Path, name: str = "precision-time") -> dict[str, Any]:
    """That of the base, whose client is a URL, since here is no network of services."""
    text = (ROOT / "packages/server/deploy/kubernetes/base/webhook.yaml").read_text(encoding="utf-8")
    found = dict(yaml.safe_load(text))
    found["metadata"]["name"] = name
    bundle = base64.b64encode(authority.read_bytes()).decode()
    found["webhooks"][0]["clientConfig"] = {"url": f"{url}/v1/kubernetes/admission", "caBundle": bundle}
    return found


@pytest.fixture(scope="module")
def namespace(api_server: ApiServer, served: Served) -> str:
    """A namespace with the label of the webhook, which the API server asks."""
    labels = {"precision-time.dev/webhook": "enabled"}
    api_server.create("/api/v1/namespaces", {"metadata": {"name": "research", "labels": labels}})
    configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    api_server.create(configurations, webhook(served.url, served.authority))

    def is_asked() -> bool:
        trial = api_server.call("POST", f"{JOBS.format('research')}?dryRun=All", job("trial"))[1]
        return "activeDeadlineSeconds" in trial["spec"]

    wait_for(is_asked)
    return "research"


def test_a_job_gets_its_annotations_and_limit(api_server: ApiServer, namespace: str) -> None:
    found = api_server.create(JOBS.format(namespace), job())
    said = {key.removeprefix(PREFIX): value for key, value in found["metadata"]["annotations"].items()}
    low, expected, high = (int(said[f"{name}-seconds"]) for name in ("low", "expected", "high"))
    assert 60 < low < expected < high
    limit = found["spec"]["activeDeadlineSeconds"]
    assert int(said["p95-seconds"]) * 1.1 <= limit < int(said["p95-seconds"]) * 1.1 + 61
    again = api_server.call("GET", f"{JOBS.format(namespace)}/resnet50")[1]
    assert again["spec"]["activeDeadlineSeconds"] == limit


def test_dry_run_stores_nothing(api_server: ApiServer, namespace: str) -> None:
    status, found = api_server.call("POST", f"{JOBS.format(namespace)}?dryRun=All", job("dry"))
    assert status == 201
    assert found["spec"]["activeDeadlineSeconds"] > 0
    assert api_server.call("GET", f"{JOBS.format(namespace)}/dry")[0] == 404


def test_a_limit_stays_and_unknown_models_are_let_in(api_server: ApiServer, namespace: str) -> None:
    kept = api_server.create(JOBS.format(namespace), job("kept", activeDeadlineSeconds=77))
    assert kept["spec"]["activeDeadlineSeconds"] == 77
    unknown = job("unknown")
    unknown["metadata"]["annotations"] = {f"{PREFIX}job": '{"model": "nobody-knows-it", "epochs": 1}'}
    found = api_server.create(JOBS.format(namespace), unknown)
    assert "activeDeadlineSeconds" not in found["spec"]
    assert found["metadata"]["annotations"] == unknown["metadata"]["annotations"]


def test_generated_names_and_cron_jobs(api_server: ApiServer, namespace: str) -> None:
    generated = job()
    generated["metadata"] |= {"generateName": "run-"}
    del generated["metadata"]["name"]
    assert api_server.create(JOBS.format(namespace), generated)["spec"]["activeDeadlineSeconds"] > 0
    cron = job("nightly")
    cron |= {"kind": "CronJob", "spec": {"schedule": "0 2 * * *", "jobTemplate": {"spec": cron["spec"]}}}
    for version in ("v1", "v1beta1"):  # batch/v1 has CronJob since Kubernetes 1.21
        path = f"/apis/batch/{version}/namespaces/{namespace}/cronjobs"
        if version == "v1" and api_server.call("GET", path)[0] == 404:
            continue
        if version == "v1":
            found = api_server.create(path, cron)
            assert found["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] > 0
        break


@pytest.mark.parametrize("name", ["pytorch", "mpi-v2", "train", "ray", "set"])
def test_custom_resources_keep_their_limit(api_server: ApiServer, namespace: str, name: str) -> None:
    """By definitions made of the cut schemas: what they do not name, the API server drops."""
    document = DOCUMENTS[name]
    version, kind = document["apiVersion"], document["kind"]
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    api_server.create(definitions, published(version, kind))
    path = f"/apis/{version}/namespaces/{namespace}/{kind.lower()}s"
    wait_for(lambda: api_server.call("GET", path)[0] == 200)
    wrong = copy.deepcopy(document)
    wrong["spec"]["noSuchField"] = 7
    found = api_server.create(path, wrong)
    assert "noSuchField" not in found["spec"]
    assert found["metadata"]["annotations"][f"{PREFIX}version"]
    place = DEADLINES[name]
    limit: Any = found
    for part in place:
        limit = limit[part]
    assert limit > 60


def test_other_namespaces_are_left_alone(api_server: ApiServer, namespace: str) -> None:
    assert "activeDeadlineSeconds" not in api_server.create(JOBS.format("default"), job())["spec"]


def test_a_service_that_is_away_holds_up_nobody(api_server: ApiServer, namespace: str) -> None:
    labels = {"precision-time.dev/webhook": "away"}
    api_server.create("/api/v1/namespaces", {"metadata": {"name": "lonely", "labels": labels}})
    away = webhook("https://localhost:1", "", name="away")
    away["webhooks"][0]["clientConfig"].pop("caBundle")
    away["webhooks"][0]["namespaceSelector"]["matchLabels"] = labels
    configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    api_server.create(configurations, away)
    time.sleep(1.0)  # until the API server has read it
    started_s = time.monotonic()
    assert "activeDeadlineSeconds" not in api_server.create(JOBS.format("lonely"), job())["spec"]
    assert time.monotonic() - started_s < 6.0
    strict = copy.deepcopy(away)
    strict["metadata"]["name"] = "strict"
    strict["webhooks"][0]["failurePolicy"] = "Fail"
    api_server.create(configurations, strict)
    try:  # the same with Fail is refused: so it was asked, and Ignore is what let it in

        def is_refused() -> bool:
            return api_server.call("POST", f"{JOBS.format('lonely')}?dryRun=All", job("second"))[0] == 500

        wait_for(is_refused)
    finally:
        api_server.call("DELETE", f"{configurations}/strict")


def test_an_authority_that_is_not_ours_is_not_trusted(
    api_server: ApiServer, served: Served, namespace: str, tmp_path: Path
) -> None:
    labels = {"precision-time.dev/webhook": "distrust"}
    api_server.create("/api/v1/namespaces", {"metadata": {"name": "distrust", "labels": labels}})
    other = webhook(
        served.url, base64.b64encode(make_pair(tmp_path)[0].read_bytes()).decode(), name="distrust"
    )
    other["webhooks"][0] |= {"namespaceSelector": {"matchLabels": labels}, "failurePolicy": "Fail"}
    api_server.create("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", other)

    def is_refused() -> bool:
        status, found = api_server.call("POST", JOBS.format("distrust"), job())
        return status == 500 and "certificate" in json.dumps(found)

    wait_for(is_refused)


def test_kubectl_takes_what_annotate_writes_and_shows_warnings(api_server: ApiServer, namespace: str) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")

    def run(*words: str, text: str) -> str:
        command = [kubectl, "--kubeconfig", str(api_server.kubeconfig()), "-n", *words]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    document = job("by-kubectl")
    [found] = estimate([document])
    expected = annotate(document, found, 0.5)
    run("default", "apply", "--validate=false", "-f", "-", text=write_documents([expected]))
    stored = api_server.call("GET", f"{JOBS.format('default')}/by-kubectl")[1]
    assert stored["spec"]["activeDeadlineSeconds"] == expected["spec"]["activeDeadlineSeconds"]
    document["metadata"]["annotations"] = {f"{PREFIX}job": '{"model": "nobody-knows-it", "epochs": 1}'}
    said = run(namespace, "create", "--validate=false", "-f", "-", text=write_documents([document]))
    assert "Warning: precision-time: not predicted: " in said
