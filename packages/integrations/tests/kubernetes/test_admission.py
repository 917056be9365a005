"""The admission webhook. `reviews.json` is what a kube-apiserver 1.20.2 sent to the webhook of the base."""

from __future__ import annotations

import base64
import copy
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from precision_time_integrations.kubernetes import annotate, estimate
from precision_time_integrations.routes import kubernetes as route
from precision_time_server.app import create_app
from precision_time_server.settings import Settings

PATH = "/v1/kubernetes/admission"
REVIEWS = json.loads((Path(__file__).parent / "reviews.json").read_text(encoding="utf-8"))
ANNOTATION = "precision-time.dev/job"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    store = tmp_path_factory.mktemp("service") / "service.sqlite"
    with TestClient(create_app(Settings.of({"store": f"sqlite:///{store}"}))) as found:
        yield found


def answered(client: TestClient, review: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(PATH, json=review)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = found["response"]
    assert response["uid"] == review["request"]["uid"]
    assert response["allowed"] is True
    assert all(len(text) <= 256 for text in response.get("warnings", ()))
    return dict(response)


def patched(document: Any, response: dict[str, Any]) -> Any:
    """The object after the patch; `add` is all that is used, and its parent must be there (RFC 6902)."""
    found = copy.deepcopy(document)
    assert ("patch" in response) == (response.get("patchType") == "JSONPatch")
    for operation in json.loads(base64.b64decode(response.get("patch", "W10="))):
        assert operation.keys() == {"op", "path", "value"}
        assert operation["op"] == "add"
        *way, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
        inner = found
        for part in way:
            inner = inner[int(part)] if isinstance(inner, list) else inner[part]
        inner[last] = operation["value"]
    return found


def created(**changes: Any) -> dict[str, Any]:
    found = copy.deepcopy(REVIEWS["create-job"])
    found["request"] |= changes
    return dict(found)


def with_job(text: Any) -> dict[str, Any]:
    """A review of a job whose annotation says something else."""
    found = created()
    found["request"]["object"]["metadata"]["annotations"][ANNOTATION] = text
    return found


@pytest.mark.parametrize("name", ["create-job", "create-jobset"])
def test_the_patch_of_a_recorded_review_is_what_annotate_writes(client: TestClient, name: str) -> None:
    document = REVIEWS[name]["request"]["object"]
    [found] = estimate([document])
    expected = annotate(document, found)
    assert expected != document
    assert patched(document, answered(client, REVIEWS[name])) == expected


def test_parents_of_the_patch_are_made_where_they_are_not_there(client: TestClient) -> None:
    review = copy.deepcopy(REVIEWS["create-jobset"])
    document = review["request"]["object"]
    stated = document["metadata"].pop("annotations")[ANNOTATION]
    pod = document["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]
    pod["metadata"] = {"annotations": {ANNOTATION: stated}}  # of the pods, as good as of the job
    changed = patched(document, answered(client, review))
    assert int(changed["metadata"]["annotations"]["precision-time.dev/expected-seconds"]) > 0
    kubeflow = json.loads(
        json.dumps({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": pod}}}})
    )
    kubeflow |= {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "p"}}
    changed = patched(kubeflow, answered(client, created(object=kubeflow)))
    assert changed["spec"]["runPolicy"]["activeDeadlineSeconds"] > 0


@pytest.mark.parametrize("name", ["update-job", "delete-job"])
def test_other_operations_are_allowed_without_a_word(client: TestClient, name: str) -> None:
    assert answered(client, REVIEWS[name]).keys() == {"uid", "allowed"}


def test_dry_runs_get_the_same_answer(client: TestClient) -> None:
    assert answered(client, created(dryRun=True)) == answered(client, created(dryRun=False))


def test_parts_of_other_jobs_are_left_to_them(client: TestClient) -> None:
    review = created()
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "1"}
    metadata = review["request"]["object"]["metadata"]
    metadata["ownerReferences"] = [{**owner, "controller": True}]
    assert answered(client, review).keys() == {"uid", "allowed"}
    metadata["ownerReferences"] = [{**owner, "apiVersion": "argoproj.io/v1alpha1", "controller": True}]
    assert "patch" in answered(client, review)


@pytest.mark.parametrize(
    "text",
    ["not JSON", "[" * 10**4, '{"model": "no-such-model", "epochs": 1}',
     '{"model": "/etc/hostname", "epochs": 1}', '{"model": "net.py:Net", "epochs": 1}',
     '{"model": "resnet50", "custom": "/etc/hostname", "epochs": 1e400}',
     '{"model": "resnet50", "calibration": "/etc/hostname", "predictor": "/etc", "batch_size": -1}',
     '{"model": "resnet50", "precision": "/etc/policy.yaml", "epochs": 1}', '{"model": "gpt2"}',
     '{"model": {"model_type": "no-such-type"}, "epochs": 1}', '{"model": "uploads/x", "epochs": 1}'],
)  # fmt: skip
def test_what_cannot_be_predicted_is_allowed_with_a_warning(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    read: list[str] = []
    opened = Path.open

    def noted(path: Path, *arguments: Any, **options: Any) -> Any:
        read.append(str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", noted)
    response = answered(client, with_job(text))
    assert "patch" not in response
    [warning] = response["warnings"]
    assert warning.startswith("precision-time: not predicted: ")
    assert not [path for path in read if path.startswith("/etc")]


def test_jobs_that_train_nothing_get_no_warning(client: TestClient) -> None:
    pod = {"template": {"spec": {"containers": [{"name": "c", "image": "example.com/cleanup"}]}}}
    cleanup = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "c-"}, "spec": pod}
    assert answered(client, created(object=cleanup)).keys() == {"uid", "allowed"}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    assert answered(client, created(object=service)).keys() == {"uid", "allowed"}


@pytest.mark.parametrize(
    "broken", [{}, {"spec": 7}, {"metadata": []}, {"spec": {"template": {"spec": {"containers": {}}}}}]
)
def test_broken_objects_are_allowed(client: TestClient, broken: dict[str, Any]) -> None:
    document = {"apiVersion": "batch/v1", "kind": "Job", **broken}
    assert "patch" not in answered(client, created(object=document))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({**REVIEWS["create-job"], "apiVersion": "admission.k8s.io/v1beta1"}, 422),
        ({**REVIEWS["create-job"], "kind": "TokenReview"}, 422),
        ({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}, 422),
        (created(uid=None), 422),
        (created(uid=""), 422),
        (created(uid="u" * 1000), 422),
        (created(operation="ADMIT"), 422),
        (created(object="text"), 422),
        ([], 400),
        ("AdmissionReview", 400),
    ],
)
def test_what_is_no_review_is_refused(client: TestClient, body: Any, status: int) -> None:
    answer = client.post(PATH, json=body)
    assert answer.status_code == status
    assert "To fix" in answer.json()["detail"]


def test_reviews_have_a_limit_of_their_own(client: TestClient) -> None:
    review = with_job("{}")
    review["request"]["object"]["metadata"]["annotations"]["filler"] = "x" * (
        2 * 2**20
    )  # the service takes 1 MiB
    assert "patch" not in answered(client, review)
    assert (
        client.post(
            PATH, content=b" " * (9 * 2**20), headers={"content-type": "application/json"}
        ).status_code
        == 413
    )
    assert (
        client.post(PATH, content=b"{" * 100_000, headers={"content-type": "application/json"}).status_code
        == 400
    )


def test_an_answer_that_takes_too_long_is_given_up(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "LIMIT_S", 0.1)
    ended = threading.Event()
    monkeypatch.setattr(route, "answer_review", lambda review: ended.wait(60.0))
    try:  # answered although the prediction has not ended
        assert answered(client, created())["warnings"] == ["precision-time: not predicted within 0.1 s"]
    finally:
        ended.set()


def test_a_mistake_of_ours_holds_up_nobody(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Any) -> Any:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(route, "answer_review", broken)
    response = answered(client, created())
    assert response["warnings"] == ["precision-time: not predicted: unexpected error"]
    assert "ZeroDivisionError" in caplog.text


def test_a_token_is_asked_where_the_service_has_some() -> None:
    settings = Settings.of({"store": "sqlite://", "tokens": ("secret",)})
    with TestClient(create_app(settings)) as guarded:
        assert guarded.post(PATH, json=created()).status_code == 401
        headers = {"Authorization": "Bearer secret"}
        assert guarded.post(PATH, json=created(), headers=headers).json()["response"]["allowed"]
