"""What is read of manifests, what is written into them, and what is left alone."""

from __future__ import annotations

import copy
import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from precision_time import predict_run
from precision_time.errors import ConfigError
from precision_time_integrations.kubernetes import annotate, estimate, read_documents, write_documents
from precision_time_integrations.kubernetes.annotations import annotate_all, annotated, patch_of

from .shapes import schema_of, violations

HERE = Path(__file__).parent
EXAMPLES = Path(__file__).parents[2] / "examples" / "kubernetes"
TEXT = (HERE / "manifests.yaml").read_text(encoding="utf-8")
DOCUMENTS = {each["metadata"]["name"]: each for each in read_documents(TEXT)[0]["items"]}
LLAMA = {"model": "llama3-8b", "precision": "bf16-mixed", "batch_size": 1, "zero_stage": 3, "tokens": "100M"}
DEADLINES = {
    "job": ("spec", "activeDeadlineSeconds"),
    "cron": ("spec", "jobTemplate", "spec", "activeDeadlineSeconds"),
    "pytorch": ("spec", "runPolicy", "activeDeadlineSeconds"),
    "mpi-v1": ("spec", "runPolicy", "activeDeadlineSeconds"),
    "mpi-v2": ("spec", "runPolicy", "activeDeadlineSeconds"),
    "train": ("spec", "activeDeadlineSeconds"),
    "ray": ("spec", "activeDeadlineSeconds"),
    "set": ("spec", "replicatedJobs", 1, "template", "spec", "activeDeadlineSeconds"),
    "workload": ("spec", "maximumExecutionTimeSeconds"),
}
PREFIX = "precision-time.dev/"


def at(document: Any, place: tuple[Any, ...]) -> Any:
    for name in place:
        document = document[name]
    return document


def gpu_job(name: str = "job", **changes: Any) -> dict[str, Any]:
    """One node with eight A100 and no word of what it trains, with fields of its pod."""
    [found] = read_documents((EXAMPLES / "job.yaml").read_text(encoding="utf-8"))
    found["metadata"] = {"name": name}
    found["spec"]["template"]["spec"] |= changes
    return dict(found)


def stated(document: dict[str, Any], **fields: Any) -> dict[str, Any]:
    document["metadata"].setdefault("annotations", {})[f"{PREFIX}job"] = json.dumps(fields)
    return document


def limits(resources: dict[str, Any]) -> dict[str, Any]:
    return {"containers": [{"name": "train", "resources": {"limits": resources}}]}


def one_of(label: str, *values: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": label, "operator": "In", "values": [*values]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeSelector": {}, "affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize("name", DEADLINES)
def test_every_kind_is_estimated_as_the_request_it_says(name: str) -> None:
    [found] = estimate([DOCUMENTS[name]])
    assert found.reason == ""
    assert {key: found.fields[key] for key in ("gpus", "nodes", "device")} == {
        "gpus": 16, "nodes": 2, "device": "H100-SXM5-80GB",
    }  # fmt: skip
    assert found.run is not None
    where = {key: value for key, value in found.fields.items() if key == "node_type"}
    assert where == ({"node_type": "p5.48xlarge"} if name.startswith("mpi") else {})
    expected = predict_run(**LLAMA, gpus=16, nodes=2, device="H100-SXM5-80GB", **where, **found.options)
    assert found.run.total_s == pytest.approx(expected.total_s, rel=1e-9)


@pytest.mark.parametrize("name", DEADLINES)
def test_the_limit_stands_in_its_place_and_nothing_else_changes(name: str) -> None:
    document = DOCUMENTS[name]
    before = copy.deepcopy(document)
    [found] = estimate([document])
    changed = annotate(document, found, 0.9, margin=0.2)
    assert document == before
    limit_s, run_s = at(changed, DEADLINES[name]), found.duration_s(0.9)
    assert run_s is not None
    assert run_s * 1.2 <= limit_s < run_s * 1.2 + 60
    assert not violations(changed, schema_of(changed))
    # Without what was added it is what it was: labels, queue, suspend and all.
    del at(changed, DEADLINES[name][:-1])[DEADLINES[name][-1]]
    if changed["spec"].get("runPolicy") == {}:
        del changed["spec"]["runPolicy"]
    notes = changed["metadata"]["annotations"]
    added = {key for key in notes if key.startswith(PREFIX) and key != f"{PREFIX}job"}
    assert {f"{PREFIX}{key}" for key in ("expected-seconds", "p90-seconds", "cost-usd", "version")} <= added
    for key in added:
        assert isinstance(notes.pop(key), str)
    if not notes:
        del changed["metadata"]["annotations"]
    assert changed == before


def test_manifests_come_back_as_they_were_written() -> None:
    documents = read_documents(TEXT)
    once = write_documents(documents)
    assert read_documents(once) == documents
    assert write_documents(read_documents(once)) == once
    assert 'value: "1e3"' in once  # a text for every reader of YAML, of which some know such floats
    assert 'value: "y"' in once
    dated = read_documents(
        "at: 2026-11-23T03:00:00Z\nmode: 0644\nport: 22:22\nsign: =\nshare: 1.5\nless: -7\n"
    )
    assert dated == [
        {"at": "2026-11-23T03:00:00Z", "mode": 0o644, "port": "22:22", "sign": "=", "share": 1.5, "less": -7}
    ]


def test_a_limit_that_is_there_stays_and_a_short_one_is_said() -> None:
    for limit, is_short in ((10, True), (10**8, False)):
        document = copy.deepcopy(DOCUMENTS["job"])
        document["spec"]["activeDeadlineSeconds"] = limit
        documents, [found] = annotate_all([document])
        assert documents[0]["spec"]["activeDeadlineSeconds"] == limit
        assert any("ends it early" in warning for warning in found.warnings) == is_short


def test_a_job_may_say_itself_which_limit_it_gets() -> None:
    document = copy.deepcopy(DOCUMENTS["job"])
    notes = document["metadata"]["annotations"] = {**document["metadata"]["annotations"]}
    notes |= {f"{PREFIX}quantile": "0.5", f"{PREFIX}margin": "0"}
    [changed], [found] = annotate_all([copy.deepcopy(document)])
    run_s = found.estimate.duration_s(0.5)
    assert run_s is not None
    assert run_s <= changed["spec"]["activeDeadlineSeconds"] < run_s + 60
    notes[f"{PREFIX}limit"] = "none"
    [changed], [found] = annotate_all([copy.deepcopy(document)])
    assert "activeDeadlineSeconds" not in changed["spec"]
    assert f"{PREFIX}p50-seconds" in changed["metadata"]["annotations"]
    for name, value in (("quantile", "1"), ("quantile", "many"), ("margin", "nan"), ("limit", "yes")):
        wrong = copy.deepcopy(document)
        wrong["metadata"]["annotations"][f"{PREFIX}{name}"] = value
        [same], [found] = annotate_all([copy.deepcopy(wrong)])
        assert same == wrong
        assert name in found.warnings[0]


def test_limits_of_pods_and_queues_are_said() -> None:
    document = copy.deepcopy(DOCUMENTS["set"])
    document["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = "30"
    document["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"] = {
        **document["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"],
        "activeDeadlineSeconds": 20,
    }
    _, [found] = annotate_all([document])
    assert [warning.split(" ends")[0] for warning in found.warnings] == [
        "label kueue.x-k8s.io/max-exec-time-seconds=30",
        "activeDeadlineSeconds=20 of the pods",
    ]


def test_a_job_that_does_not_fit_gets_no_limit() -> None:
    [changed], [found] = annotate_all([stated(gpu_job(), model="llama3-70b", batch_size=8, steps=100)])
    assert found.estimate.fits is False
    assert "activeDeadlineSeconds" not in changed["spec"]
    assert "does not fit" in found.warnings[0]


def test_reasons_are_in_the_words_of_a_manifest() -> None:
    for fields in ({"epochs": 1}, {"model": "resnet50"}):
        [found] = estimate([stated(gpu_job(), **fields)])
        assert "precision-time.dev/job" in found.reason
        assert len(found.reason) < 220  # `kubectl` shows no long ones
    claimed = gpu_job(containers=[{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}])
    [found] = estimate([stated(claimed, model="resnet50", epochs=1, device="H100", gpus=4)])
    assert (found.reason, found.fields["gpus"]) == ("", 4)
    assert "claims" in found.unread[0]


def test_lists_and_other_objects() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [DOCUMENTS["job"], service, DOCUMENTS["ray"]]}
    assert [found.name for found in estimate([service, listed])] == ["job", "ray"]
    [changed, same], found = annotate_all([copy.deepcopy(listed), service])
    assert len(found) == 2
    assert changed["items"][0]["spec"]["activeDeadlineSeconds"] > 0
    assert (changed["items"][1], same) == (service, service)
    with pytest.raises(ConfigError, match="Service"):
        estimate([service])


@pytest.mark.parametrize(
    ("labels", "device", "options"),
    [
        ({"nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB"}, "V100-SXM2-32GB", {}),
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}, "A100-SXM4-40GB", {"cloud": "gcp"}),
        ({"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"}, "TPUv5e", {"cloud": "gcp"}),
        ({"node.kubernetes.io/instance-type": "p4d.24xlarge"}, "A100-SXM4-40GB", {"cloud": "aws"}),
        (
            {"karpenter.k8s.aws/instance-gpu-name": "l40s", "karpenter.sh/capacity-type": "spot"},
            "L40S",
            {"cloud": "aws", "spot": True},
        ),
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, "MI300X", {}),
        # The most exact label counts.
        (
            {
                "node.kubernetes.io/instance-type": "p4d.24xlarge",
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
            },
            "A100-SXM4-80GB",
            {"cloud": "aws"},
        ),
    ],
)  # fmt: skip
def test_labels_name_the_device(labels: dict[str, str], device: str, options: dict[str, Any]) -> None:
    [found] = estimate([stated(gpu_job(nodeSelector=labels), model="resnet50", epochs=1)])
    assert (found.fields["device"], found.options, found.reason) == (device, options, "")


@pytest.mark.parametrize(
    ("resource", "count"), [("amd.com/gpu", 8), ("google.com/tpu", "4"), ("habana.ai/gaudi", 8)]
)
def test_accelerators_of_other_makers_are_counted(resource: str, count: Any) -> None:
    job = stated(gpu_job(nodeSelector={}), model="bert-large", device="Gaudi2", steps=100)
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {resource: count}}
    [found] = estimate([job])
    assert (found.fields["gpus"], found.reason) == (int(count), "")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nodeSelector": {}}, "does not say which device"),
        ({"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-Z9000"}}, "does not say which device"),
        ({"containers": [{"name": "c"}]}, "asks for no GPU"),
        (limits({"nvidia.com/mig-1g.5gb": 1}), "MIG"),
        (limits({"nvidia.com/gpu": "0.5"}), "whole number"),
        (limits({"nvidia.com/gpu": 10**30}), "whole number"),
        ({"containers": "many"}, "containers is 'many'"),
        ({"containers": [7]}, "no mapping"),
        (limits({"nvidia.com/gpu": 1, "amd.com/gpu": 1}), "one kind"),
        (one_of("nvidia.com/gpu.product", "Tesla-T4", "NVIDIA-L4"), "L4 or T4"),
    ],
)
def test_what_cannot_be_answered_stays_as_it_is(change: dict[str, Any], words: str) -> None:
    job = stated(gpu_job(**change), model="resnet50", epochs=1)
    before = copy.deepcopy(job)
    [changed], [found] = annotate_all([job])
    assert words in found.estimate.reason
    assert "To fix" in found.estimate.reason
    assert changed == before
    assert found.changes == ()


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "7", "null", '{"model": "resnet50", "epochs": NaN}', '{"model": "resnet50", "run": 7}',
     '{"model": "resnet50", "no_such_field": 1, "epochs": 1}', '{"model": "no-such-model", "epochs": 1}',
     '{"model": "net.py:Net", "epochs": 1}', '{"model": "/etc/hostname", "epochs": 1}',
     '{"model": "resnet50", "custom": "/etc/hostname", "epochs": "one"}', "[" * 10_000, '{"model": 7}', 7,
     '{"model": "resnet50", "gpus": 1e99, "epochs": 1}', '{"epochs": 1}', '{"model": "resnet50"}'],
)  # fmt: skip
def test_annotations_that_say_nothing_usable(text: Any) -> None:
    job = gpu_job()
    job["metadata"]["annotations"] = {f"{PREFIX}job": text}
    before = copy.deepcopy(job)
    [changed], [found] = annotate_all([job])
    assert found.estimate.run is None
    assert "To fix" in found.estimate.reason
    assert changed == before


def test_pods_that_run_one_after_the_other_are_no_training() -> None:
    job = stated(gpu_job(), model="resnet50", epochs=1)
    job["spec"] |= {"completions": 10, "parallelism": 2}
    [found] = estimate([job])
    assert "do not train one model together" in found.reason


def test_what_the_user_gives_counts_most() -> None:
    job = stated(gpu_job(nodeSelector={}), model="resnet50", epochs=1)
    [found] = estimate([job], given={"device": "H100", "epochs": 2, "batch_size": 64})
    assert found.run is not None
    assert (found.run.device, found.run.gpus) == ("H100-SXM5-80GB", 8)
    once = estimate([job], given={"device": "H100", "batch_size": 64})[0].run
    assert once is not None
    assert found.run.terms["steps"] == pytest.approx(2 * once.terms["steps"], rel=1e-3)


def test_shell_scripts_variables_and_ray_environments_are_read() -> None:
    job = gpu_job()
    container = job["spec"]["template"]["spec"]["containers"][0]
    container |= {
        "command": ["bash", "-c"],
        "args": ["#PRECISION_TIME model=resnet50 epochs=$(EPOCHS)\ntorchrun --nproc_per_node=8 train.py"],
        "env": [{"name": "EPOCHS", "value": "3"}],
    }
    [found] = estimate([job])
    assert (found.fields["model"], found.fields["epochs"], found.reason) == ("resnet50", 3, "")
    ray = copy.deepcopy(DOCUMENTS["ray"])
    del ray["metadata"]["annotations"]
    ray["spec"]["runtimeEnvYAML"] = "env_vars: {PRECISION_TIME_JOB: model=gpt2 steps=1000}"
    [found] = estimate([ray])
    assert (found.fields["model"], found.fields["gpus"], found.reason) == ("gpt2", 16, "")


def test_files_of_config_maps_are_read() -> None:
    deepspeed = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}
    settings: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    settings["data"] = {"ds.json": json.dumps(deepspeed)}
    job = gpu_job()
    pod = job["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "v", "configMap": {"name": "settings"}}]
    pod["containers"][0] |= {
        "volumeMounts": [{"name": "v", "mountPath": "/config"}],
        "workingDir": "/work",
        "command": ["deepspeed", "--num_gpus=8", "train.py", "--deepspeed", "../config/ds.json"],
        "args": ["--model_name_or_path=bert-large", "--max_steps=100", "--output_dir=x",
                 "--per_device_train_batch_size=4"],
    }  # fmt: skip
    [found] = estimate([settings, job])
    assert found.fields.items() >= {
        "model": "bert-large", "batch_size": 4, "zero_stage": 2, "precision": "bf16-mixed",
        "steps": 100, "gpus": 8,
    }.items()  # fmt: skip
    [without] = estimate([job])
    assert "zero_stage" not in without.fields
    assert any("ds.json" in text for text in without.unread)


def test_texts_that_are_no_manifests() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
        for before, name in zip("abcdefg", "bcdefgh", strict=True)
    )
    for text in (bomb, "[" * 100_000, "a: &a [*a]", "a: b: c", "\x00", "---\na: 1\n" * 20_000):
        with pytest.raises(ConfigError, match="not valid YAML"):
            read_documents(text)
    with pytest.raises(ConfigError, match="16 MiB"):
        read_documents("#" * (16 * 2**20 + 1))
    for empty in ("", "---\n---\n", "null"):
        with pytest.raises(ConfigError, match="is empty"):
            estimate(read_documents(empty))


def test_five_hundred_documents() -> None:
    text = "---\n".join([(EXAMPLES / "job.yaml").read_text(encoding="utf-8")] * 500)
    documents = read_documents(text)
    assert len(documents) == 500
    assert documents.count(documents[0]) == 500


TEXTS = [
    *("y", "No", "on", "null", "~", "NaN", ".inf", ".5", "1.", "1e3", "+1", "0x10", "0o7", "0777", "1_000"),
    *("12:30:45", "22:22", "2026-01-01", "2026-01-01T00:00:00Z", "=", "<<", "-", "- a", "?", "# c", "a: b"),
    *(
        "a #b",
        "a:",
        ":a",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a",
        "|",
        ">",
        "[a",
        "{a",
        "a, b",
        " lead",
        "trail ",
    ),
    *("'q'", '"dq"', "both ' and \"", "tab\there", "one\ntwo\n", "one\ntwo", "\nlead", "one\n  two\n"),
    *(
        "one \ntwo",
        "one\n\n",
        "cr\r\nlf\r\n",
        "\u00e9\u4e2d\u2028",
        "\\n",
        "",
        "a" * 300,
        f"{'x' * 30} {'y' * 200}",
    ),
]


def test_texts_stay_texts_for_kubernetes_too(tmp_path: Path) -> None:
    data = {f"key-{number}": text for number, text in enumerate(TEXTS)}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}
    text = write_documents([document])
    assert read_documents(text) == [document]
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    (tmp_path / "map.yaml").write_bytes(text.encode())
    (tmp_path / "kustomization.yaml").write_text("resources: [map.yaml]\n", encoding="utf-8")
    done = subprocess.run([kubectl, "kustomize", tmp_path], capture_output=True, check=True)
    [found] = read_documents(done.stdout.decode())
    assert found["data"] == data


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of all values in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield (*place, name)
        yield from places(each, (*place, name))


def test_broken_manifests_end_in_a_reason() -> None:
    """Any value in any place: an answer or a reason, never another error."""
    draw = random.Random(19)
    values: list[Any] = [
        None, True, 0, -1, 7, 2**70, 1.5, float("inf"), "", "x", "8", "$(A)", [], [None], [[]], {}, {"a": 1},
        {"spec": {}}, [{"name": 1}], "\u00e9\n\t", "x" * 5000, {"annotations": []},
    ]  # fmt: skip
    for _ in range(150):
        document = json.loads(json.dumps(draw.choice([*DOCUMENTS.values()])))
        for _ in range(draw.randint(1, 3)):
            *way, last = draw.choice([*places(document)])
            at(document, tuple(way))[last] = copy.deepcopy(draw.choice(values))
        found = annotated(document)
        if found is not None:
            assert found.changes or found.warnings
            assert patch_of(document, found.changes) or not found.changes
