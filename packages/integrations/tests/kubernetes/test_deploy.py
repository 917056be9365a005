"""The manifests in deploy/: all of them listed, as the published schemas want them, and without loopholes."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from precision_time_integrations.kubernetes import read_documents
from precision_time_integrations.kubernetes.admission import VERSION
from precision_time_integrations.kubernetes.kinds import KINDS

from .conftest import ApiServer
from .shapes import schema_of, violations

DEPLOY = Path(__file__).parents[3] / "server" / "deploy" / "kubernetes"


def documents(folder: str) -> list[dict[str, Any]]:
    files = sorted((DEPLOY / folder).glob("*.yaml"))
    return [each for file in files for each in read_documents(file.read_text(encoding="utf-8"))]


BASE = {each["kind"]: each for each in documents("base")}


@pytest.mark.parametrize("folder", ["base", "cert-manager"])
def test_every_file_is_listed_and_valid(folder: str) -> None:
    [kustomization] = [each for each in documents(folder) if each["kind"] == "Kustomization"]
    listed = {name for name in kustomization["resources"] if name.endswith(".yaml")}
    assert listed == {file.name for file in (DEPLOY / folder).glob("*.yaml")} - {"kustomization.yaml"}
    for document in documents(folder):
        if document["kind"] != "Kustomization":
            assert not violations(document, schema_of(document)), document["kind"]


@pytest.mark.skipif(find_spec("kubernetes_validate") is None, reason="kubernetes-validate is not installed")
def test_the_whole_schemas_of_kubernetes() -> None:
    import kubernetes_validate as checker

    for document in documents("base"):
        if document["kind"] != "Kustomization":
            checker.validate(document, desired_version=checker.latest_version(), strict=True)


@pytest.mark.parametrize("folder", ["base", "cert-manager"])
def test_kustomize_builds_them(folder: str) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    done = subprocess.run([kubectl, "kustomize", DEPLOY / folder], capture_output=True, text=True, check=True)
    built = {each["kind"]: each for each in read_documents(done.stdout)}
    assert BASE.keys() - {"Kustomization"} <= built.keys()
    assert built["Deployment"]["metadata"]["namespace"] == "precision-time"
    hook = built["MutatingWebhookConfiguration"]
    assert hook["webhooks"][0]["clientConfig"]["service"]["namespace"] == "precision-time"
    injected = hook["metadata"].get("annotations", {}).get("cert-manager.io/inject-ca-from")
    assert injected == (None if folder == "base" else "precision-time/precision-time")


def test_the_webhook_asks_for_what_is_read_and_holds_up_nobody() -> None:
    [hook] = BASE["MutatingWebhookConfiguration"]["webhooks"]
    assert hook["failurePolicy"] == "Ignore"
    assert hook["sideEffects"] == "None"
    assert hook["admissionReviewVersions"] == [VERSION.rpartition("/")[2]]
    assert hook["namespaceSelector"]["matchLabels"] == {"precision-time.dev/webhook": "enabled"}
    asked = {
        (group, version, resource)
        for rule in hook["rules"]
        for group in rule["apiGroups"]
        for version in rule["apiVersions"]
        for resource in rule["resources"]
    }
    for kind in KINDS:
        for version in kind.versions:  # Kueue makes workloads itself, of jobs that were asked of
            known = (kind.group, version, f"{kind.name.lower()}s") in asked
            assert known == (kind.name != "Workload")


def test_pods_can_write_nothing_and_reach_nothing() -> None:
    pod = BASE["Deployment"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"]
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert BASE["NetworkPolicy"]["spec"]["egress"] == []
    mounted = {each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")}
    written = {each["value"] for each in container["env"] if each.get("value", "").startswith("/")}
    assert written <= mounted


def test_the_command_of_the_pods_is_one_of_ours() -> None:
    from precision_time.cli.main import load_command

    [container] = BASE["Deployment"]["spec"]["template"]["spec"]["containers"]
    name, *words = container["args"]
    context = load_command(name).make_context(name, words)
    [port] = container["ports"]
    assert context.params["port"] == port["containerPort"]
    folder = next(each["mountPath"] for each in container["volumeMounts"] if each["name"] == "tls")
    assert (str(context.params["tls_cert"]), str(context.params["tls_key"])) == (
        f"{folder}/tls.crt", f"{folder}/tls.key",
    )  # fmt: skip


def test_a_real_api_server_takes_them(api_server: ApiServer) -> None:
    paths = {
        "Namespace": "/api/v1/namespaces",
        "ServiceAccount": "/api/v1/namespaces/precision-time/serviceaccounts",
        "Service": "/api/v1/namespaces/precision-time/services",
        "Deployment": "/apis/apps/v1/namespaces/precision-time/deployments",
        "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/precision-time/networkpolicies",
        "PodDisruptionBudget": "/apis/policy/v1/namespaces/precision-time/poddisruptionbudgets",
        "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    }
    for kind, path in paths.items():
        if api_server.call("GET", path)[0] == 404:  # policy/v1 is there since Kubernetes 1.21
            assert kind == "PodDisruptionBudget"
            continue
        document, dry = BASE[kind], ""
        if kind != "Namespace":  # other tests may have one of that name
            document, dry = {**document, "metadata": {**document["metadata"], "name": "dry"}}, "?dryRun=All"
        status, found = api_server.call("POST", f"{path}{dry}", document)
        assert status == 201, (kind, found)
