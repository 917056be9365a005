"""Requests through the whole service, and what it says of bad ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from precision_time.corpus.importer import read_measurements
from precision_time.corpus.measurement import Measurement
from precision_time.errors import (
    CaptureError,
    ConfigError,
    NotFittedError,
    PrecisionTimeError,
    UnknownNameError,
)
from precision_time.hardware.catalog import get_cluster
from precision_time.hardware.device import Cluster
from precision_time.hardware.inventory import ClusterResources
from precision_time.learn.table import job_table
from precision_time.request.datasets import DatasetFacts
from precision_time.workload.graph import Node, OpClass, OpGraph
from precision_time.workload.resolve import load_workload
from precision_time_integrations.inventory.mapping import resources
from precision_time_papers.ghn.weights import find_weights, initial_weights, save_weights
from precision_time_papers.predictddl.columns import (
    BLIND,
    CLUSTER_COLUMNS,
    PRECISION,
    cluster_columns,
    picked,
    size_columns,
)
from precision_time_papers.predictddl.contract import Answer, Refusal
from precision_time_papers.predictddl.controller import PredictDDL, PriceCache, answer_batch
from precision_time_papers.predictddl.embeddings import (
    embedding_of_graph,
    job_embeddings,
    probe_distance,
    probe_embeddings,
)
from precision_time_papers.predictddl.registry import Registry, TrainedType
from precision_time_papers.predictddl.requests import PredictDDLRequest, read_batch, read_request, resolve
from precision_time_papers.predictddl.trainer import input_columns

BODY: dict[str, Any] = {
    "model": "resnet18",
    "batch_size": 64,
    "dataset": "cifar10",
    "cluster": {"device": "V100-SXM2-16GB", "num_nodes": 2, "devices_per_node": 4},
}


@pytest.fixture
def service(registry: Registry) -> PredictDDL:
    return PredictDDL(registry=registry, measurements=())


def request_of(cluster: ClusterResources | Cluster, **changes: Any) -> PredictDDLRequest:
    usual = {"model": "resnet18", "batch_size": 64, "dataset": "cifar10", "precision": "fp32"}
    return PredictDDLRequest.of({**usual, "cluster": cluster, **changes})


def test_time_of_a_run_is_steps_times_step_time(service: PredictDDL, cluster: ClusterResources) -> None:
    answer = service.predict(request_of(cluster, epochs=3))
    assert answer.steps_per_epoch == -(-50000 // (64 * 8))
    assert answer.training_time_s == pytest.approx(3 * answer.steps_per_epoch * answer.step_time_s)
    assert str(answer.task) == "hit"
    assert (answer.predictor.dataset_type, answer.predictor.version) == ("cifar", 1)
    assert answer.predictor.variant == PRECISION
    assert json.loads(json.dumps(answer.to_dict()))["task"] == "hit"
    assert any("12 architectures only" in note for note in answer.substitutions)


def test_the_answer_is_that_of_the_regressor(service: PredictDDL, cluster: ClusterResources) -> None:
    trained = service.registry.load("cifar")
    for variant in (BLIND, PRECISION):
        request = request_of(cluster, variant=variant, precision="fp16-mixed", regressor="svr")
        job = resolve(request).job
        names, values = input_columns([job], job_table([job]))
        model = trained.variants[variant]
        expected = model.regressors["svr"].predict(picked(names, values, model.names))
        assert service.predict(request).step_time_s == pytest.approx(float(expected[0]))


def test_only_the_precision_variant_sees_the_precision(
    service: PredictDDL, cluster: ClusterResources
) -> None:
    def seconds(variant: str, precision: str) -> float:
        return service.predict(
            request_of(cluster, variant=variant, precision=precision, regressor="linear")
        ).step_time_s

    assert seconds(BLIND, "fp32") == seconds(BLIND, "fp16-mixed")
    assert seconds(PRECISION, "fp32") != seconds(PRECISION, "fp16-mixed")
    blind = service.predict(request_of(cluster, variant=BLIND))
    assert any("blind to precision" in note for note in blind.substitutions)


def test_a_batch_answers_as_single_requests_do(service: PredictDDL, cluster: ClusterResources) -> None:
    asked = [
        request_of(cluster, model=model, batch_size=batch, variant=variant)
        for model in ("resnet18", "vgg11")
        for batch in (16, 128)
        for variant in (BLIND, PRECISION)
    ]
    together = service.predict(asked)
    for one, answer in zip(asked, together, strict=True):
        assert isinstance(answer, Answer)
        assert answer.step_time_s == pytest.approx(service.predict(one).step_time_s, rel=1e-9)


def test_refused_requests_do_not_stop_the_others(service: PredictDDL, cluster: ClusterResources) -> None:
    answers = service.predict(
        [
            request_of(cluster, name="a"),
            request_of(cluster, name="b", model="no-such-model"),
            request_of(cluster, name="c", version=9),
            request_of(resources([], source="nothing"), name="d"),
        ]
    )
    assert [type(answer) for answer in answers] == [Answer, Refusal, Refusal, Refusal]
    assert all("To fix" in answer.error for answer in answers if isinstance(answer, Refusal))
    assert service.predict([]) == []


def test_own_graphs_are_embedded_with_their_unknown_operators_counted(
    service: PredictDDL, cluster: ClusterResources
) -> None:
    graph = load_workload("resnet18").graph
    odd = Node(
        op="my_kernel", op_class=OpClass.UNKNOWN, inputs=(len(graph.nodes) - 1,), repeat=3, out_elems=10.0
    )
    answer = service.predict(request_of(cluster, model=replace(graph, nodes=(*graph.nodes, odd))))
    assert answer.unknown_ops == {"my_kernel": 3}
    assert answer.step_time_s > 0


def test_an_empty_graph_is_refused(service: PredictDDL, cluster: ClusterResources) -> None:
    empty = OpGraph(name="empty", nodes=(), params=0.0, trainable_params=0.0, param_tensors=0)
    with pytest.raises(CaptureError, match="no operators.*To fix"):
        service.predict(request_of(cluster, model=empty))
    with pytest.raises(CaptureError, match="no operators"):
        embedding_of_graph(empty)


@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        (
            {"facts": DatasetFacts(name="far", samples=1, classes=10**9, elements=1e12)},
            NotFittedError,
            "closer",
        ),
        ({"dataset": "librispeech"}, NotFittedError, "librispeech|speech"),
        ({"dataset": "no-such-data"}, UnknownNameError, "state its"),
        ({"variant": "predictdll"}, ConfigError, "variant='predictdll'"),
        ({"regressor": "oracle"}, ConfigError, "regressor='oracle'"),
        ({"tp": 2}, ConfigError, "does not read tp: it knows data-parallel jobs only"),
        ({"device": "V100"}, ConfigError, "device and a whole cluster are given"),
        ({"version": 9}, ConfigError, "no version 9"),
        ({"precision": "fp13"}, UnknownNameError, "precision"),
    ],
)
def test_what_cannot_be_answered_is_said(
    service: PredictDDL, cluster: ClusterResources, changes: dict[str, Any], error: type, named: str
) -> None:
    with pytest.raises(error, match=named) as caught:
        service.predict(request_of(cluster, **changes))
    assert "To fix" in str(caught.value)


def test_the_closest_type_serves_and_says_so(service: PredictDDL, cluster: ClusterResources) -> None:
    answer = service.predict(request_of(cluster, dataset="tiny-imagenet"))
    assert str(answer.task).startswith("closest(")
    assert answer.steps_per_epoch == -(-100000 // 512)
    assert any("tiny-imagenet" in note and "closest" in note for note in answer.substitutions)


def test_a_predictor_of_another_ghn_is_refused(
    service: PredictDDL, cluster: ClusterResources, trained: TrainedType
) -> None:
    service.registry.save(replace(trained, card={**trained.card, "ghn_version": "older"}))
    with pytest.raises(NotFittedError, match="GHN older.*predictddl train cifar"):
        service.predict(request_of(cluster))
    assert service.predict(request_of(cluster, version=1)).predictor.version == 1
    service.registry.save(replace(trained, probe=trained.probe + 1.0))
    with pytest.raises(NotFittedError, match="reads graphs otherwise"):
        service.predict(request_of(cluster))


def test_a_predictor_keeps_its_own_ghn_and_no_other_is_taken_for_it(
    service: PredictDDL, cluster: ClusterResources, trained: TrainedType
) -> None:
    ghn, other = initial_weights(3), initial_weights(4)
    card = {**trained.card, "ghn_version": ghn.version}
    kept = service.registry.save(replace(trained, card=card, ghn=ghn, probe=probe_embeddings(ghn)))
    shipped, own = service.predict([request_of(cluster, version=1), request_of(cluster)])
    assert isinstance(shipped, Answer)
    assert isinstance(own, Answer)
    assert own.step_time_s != shipped.step_time_s
    service.ghn = ghn
    assert service.predict(request_of(cluster)).step_time_s == own.step_time_s
    service.ghn = other
    with pytest.raises(NotFittedError, match=rf"under the GHN {ghn.version}, and the one given is"):
        service.predict(request_of(cluster))
    instead = service.predict(request_of(cluster, dataset="tiny-imagenet"))
    assert instead.task.embedding_distance == pytest.approx(
        probe_distance(probe_embeddings(other), probe_embeddings(ghn)), rel=1e-4
    )
    path = service.registry.own / "cifar" / f"v{kept.version}" / "ghn.safetensors"
    save_weights(path, other)
    service.ghn = None
    with pytest.raises(NotFittedError, match="ghn.safetensors is not what"):
        service.predict(request_of(cluster))


def test_a_hypernetwork_is_found_in_its_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds 0 .safetensors"):
        find_weights(tmp_path)
    save_weights(tmp_path / "ghn.safetensors", initial_weights(3))
    assert find_weights(tmp_path).version == initial_weights(3).version
    with pytest.raises(ConfigError, match="no hypernetwork"):
        find_weights(tmp_path / "other.safetensors")


def test_a_damaged_predictor_is_named_for_every_request_of_its_type(
    service: PredictDDL, cluster: ClusterResources
) -> None:
    path = service.registry.own / "cifar" / "v1" / "model.npz"
    path.write_bytes(path.read_bytes()[:100])
    answers = service.predict([request_of(cluster), request_of(cluster)])
    assert all(isinstance(answer, Refusal) and str(path) in answer.error for answer in answers)


def test_inputs_beyond_training_are_said(service: PredictDDL, cluster: ClusterResources) -> None:
    huge = get_cluster(device="H100", num_devices=8192, num_nodes=1024)
    answer = service.predict(request_of(huge, variant=BLIND))
    assert any("beyond what training saw" in note for note in answer.substitutions)


def test_missing_type_is_trained_from_the_runs_at_hand(
    tmp_path: Path, cluster: ClusterResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    from precision_time_papers.predictddl import fitting, trainer

    from .conftest import SMALL

    monkeypatch.setattr(trainer, "FitSettings", lambda: SMALL)
    rows = own_runs(tmp_path)
    said: list[str] = []
    service = PredictDDL(registry=Registry(own=tmp_path / "r"), measurements=rows, progress=said.append)
    first = service.predict(request_of(cluster))
    assert str(first.task) == "trained"
    assert any("training a predictor for cifar" in word for word in said)
    again = service.predict(request_of(cluster))
    assert (str(again.task), again.step_time_s) == ("hit", first.step_time_s)
    assert service.registry.load("cifar").card["sources"] == {"own-lab": fitting.LEAST_ROWS}
    few = PredictDDL(registry=Registry(own=tmp_path / "s"), measurements=rows[:30])
    with pytest.raises(NotFittedError, match="30 data-parallel runs of"):
        few.predict(request_of(cluster))


def own_runs(folder: Path) -> list[Measurement]:
    """A CSV of 60 runs as a user writes it: five models on CIFAR-10."""
    models = ("resnet18", "resnet34", "vgg11", "mobilenetv2_100", "densenet121")
    lines = [
        "source,source_ref,model,task,dataset,framework,framework_version,device,devices,nodes,precision,"
        "batch_per_device,global_batch,model_config,step_time_s"
    ]
    config = '"{""image_size"": 32}"'
    for place, model in enumerate(models):
        for batch in (16, 32, 64, 128):
            for devices in (1, 2, 4):
                seconds = 0.002 * (place + 1) * batch / 16 * (1 + 0.05 * devices)
                lines.append(
                    f"own-lab,run,{model},image-classification-train,cifar10,pytorch,2.1,V100-SXM2-16GB,"
                    f"{devices},1,fp32,{batch},{batch * devices},{config},{seconds}"
                )
    path = folder / "runs.csv"
    path.write_text("\n".join(lines) + "\n")
    found = [item for item in read_measurements(path) if isinstance(item, Measurement)]
    assert all(item.usable for item in found)
    return found


def test_batch_files_keep_their_order_and_name_broken_lines(service: PredictDDL, tmp_path: Path) -> None:
    lines = [
        json.dumps({**BODY, "name": "first"}),
        '{"model": "resnet18", "batch_size": ',
        "",
        json.dumps({**BODY, "batch_size": -1}),
        "[1, 2]",
        json.dumps({**BODY, "cluster": {"device": "V100", "num_nodes": 0}}),
        json.dumps({**BODY, "dataset": {"name": "mine", "samples": 0, "classes": 10, "shape": [3, 32, 32]}}),
        json.dumps({**BODY, "variant": "predictddl"}),
    ]
    path = tmp_path / "requests.jsonl"
    path.write_bytes("\n".join(lines).encode() + b'\n{"model": "\xff\xfe"}\n')
    answers = answer_batch(service, read_batch(path))
    kinds = [type(answer) for answer in answers]
    assert kinds == [Answer, Refusal, Refusal, Refusal, Refusal, Refusal, Answer, Refusal]
    refusals = [answer for answer in answers if isinstance(answer, Refusal)]
    assert [refusal.line for refusal in refusals] == [2, 4, 5, 6, 7, None]
    assert refusals[3].name == "line 6"
    named = ("not a JSON object", "batch_size", "not an object", "num_nodes", "samples=0", "model")
    assert all(word in refusal.error for word, refusal in zip(named, refusals, strict=True))
    assert isinstance(answers[0], Answer)
    assert answers[0].name == "first"


@pytest.mark.parametrize(
    "model", ["os:abort", "sys:exit", "no_such:thing", "net.pt2", "net.onnx", "my/config.json"]
)
def test_a_line_of_a_batch_names_no_code(service: PredictDDL, tmp_path: Path, model: str) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in ({**BODY, "model": model}, BODY)))
    refused, answered = answer_batch(service, read_batch(path))
    assert isinstance(refused, Refusal)
    assert "is code or a file" in refused.error
    assert isinstance(answered, Answer)


def test_an_error_that_nobody_foresaw_refuses_its_own_line_only(
    service: PredictDDL, cluster: ClusterResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual_resolve, usual_columns = resolve, input_columns

    def odd_resolve(request: PredictDDLRequest) -> Any:
        if request.name == "unreadable":
            raise ZeroDivisionError("odd\x1b[2J\nmodel")
        return usual_resolve(request)

    def odd_columns(jobs: Any, priced: Any, **options: Any) -> Any:
        if any(job.layout.micro_batch_size == 7 for job in jobs):
            raise IndexError("odd job")
        return usual_columns(jobs, priced, **options)

    monkeypatch.setattr("precision_time_papers.predictddl.controller.resolve", odd_resolve)
    monkeypatch.setattr("precision_time_papers.predictddl.controller.input_columns", odd_columns)
    asked = [
        request_of(cluster, name="unreadable"),
        request_of(cluster, name="odd", batch_size=7),
        request_of(cluster, name="good"),
    ]
    first, second, third = service.predict(asked)
    assert isinstance(first, Refusal)
    assert first.error.startswith("Unexpected error ZeroDivisionError: odd\\x1b[2J model.")
    assert isinstance(second, Refusal)
    assert "IndexError" in second.error
    assert isinstance(third, Answer)
    with pytest.raises(ZeroDivisionError):
        service.predict(asked[0])


@pytest.mark.parametrize("sizes", [{"hiden": 64}, {"hidden": "64"}])
def test_unknown_sizes_are_refused(
    service: PredictDDL, cluster: ClusterResources, sizes: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="its sizes are|is not possible"):
        service.predict(request_of(cluster, model="bert-base", dataset="squad", sizes=sizes))


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_lists_of_requests_read_as_lines_do(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"requests{suffix}"
    path.write_text(json.dumps({"requests": [BODY, {**BODY, "batch_size": "many"}]}))
    first, second = read_batch(path)
    assert isinstance(first, PredictDDLRequest)
    assert isinstance(second, Refusal)
    path.write_text("just words")
    with pytest.raises(ConfigError, match="no list of requests"):
        read_batch(path)
    path.write_text("[]")
    with pytest.raises(ConfigError, match="holds no request"):
        read_batch(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_batch(tmp_path / "missing.jsonl")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"epochs": float("nan")}, "epochs=nan"),
        ({"warmup": 3}, "Unknown field 'warmup'"),
        ({"cluster": {"device": "V100", "gpus": 8}}, "gpus"),
        ({"dataset": {"name": "mine", "shape": [0]}}, "shape"),
    ],
)
def test_a_broken_field_of_a_request_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        read_request({**BODY, **change})


def test_gaps_are_filled_as_for_every_request() -> None:
    resolved = resolve(read_request({"model": "resnet18"}))
    job = resolved.job
    assert (job.cluster.device.name, job.precision.name) == ("A100-SXM4-80GB", "bf16-mixed")
    assert any("Device not given" in note for note in resolved.notes)
    assert any("Batch size not given" in note for note in resolved.notes)


def test_a_run_of_given_steps_takes_steps_times_step_time(
    service: PredictDDL, cluster: ClusterResources
) -> None:
    answer = service.predict(request_of(cluster, steps=500))
    assert answer.training_time_s == pytest.approx(500 * answer.step_time_s)
    assert answer.epochs == pytest.approx(500 / 98)


def test_cluster_columns_are_logarithms_of_what_the_cluster_is(cluster: ClusterResources) -> None:
    job = resolve(request_of(cluster, num_microbatches=2)).job
    names, values = cluster_columns([job])
    assert names == CLUSTER_COLUMNS
    row = dict(zip(names, np.exp(values[0]), strict=True))
    assert row["cluster.log_nodes"] == pytest.approx(2)
    assert row["cluster.log_devices_per_node"] == pytest.approx(4)
    assert row["cluster.log_batch_per_device"] == pytest.approx(128)
    assert row["cluster.log_global_batch_size"] == pytest.approx(1024)
    assert row["cluster.log_memory_bytes"] == pytest.approx(16 * 2**30)


def test_annotated_blocks_add_up_to_the_blind_embedding(cluster: ClusterResources) -> None:
    jobs = [resolve(request_of(cluster, precision=word)).job for word in ("fp32", "fp16-mixed")]
    _, values = job_embeddings(jobs)
    blocks = values[:, 32:160].reshape(2, 4, 32)
    np.testing.assert_allclose(blocks.sum(axis=1), values[:, :32], atol=1e-5)
    np.testing.assert_array_equal(values[0, :32], values[1, :32])
    assert np.abs(blocks[0] - blocks[1]).max() > 0.0


def test_the_size_of_a_network_is_what_is_known_of_it() -> None:
    """ResNet-50 at 224 pixels: 4.09 G multiply-adds, 25.557 M parameters (torchvision's documentation)."""
    graphs = [load_workload("resnet50", image_size=side).graph for side in (224, 112)]
    whole, small, batch = np.exp(size_columns([*graphs, graphs[0]], np.array([1.0, 1.0, 32.0])))
    assert whole[0] == pytest.approx(2 * 4.09e9, rel=0.01)
    assert whole[1] == pytest.approx(25_557_032)
    np.testing.assert_allclose(small[[1, 3]], whole[[1, 3]])
    assert small[2] == pytest.approx(whole[2] / 4, rel=0.05)
    np.testing.assert_allclose(batch, whole * [32, 1, 32, 1])


def test_remembered_prices_are_the_prices(cluster: ClusterResources) -> None:
    jobs = [resolve(request_of(cluster, batch_size=batch)).job for batch in (8, 64, 8)]
    prices = PriceCache(size=1)
    for _ in range(2):
        found = prices.table(jobs)
        direct = job_table(jobs)
        np.testing.assert_allclose(found.features, direct.features, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(found.analytical_s, direct.analytical_s)


def test_counts_that_cannot_be_are_refused(cluster: ClusterResources) -> None:
    for count in ("batch_size", "epochs", "num_microbatches"):
        with pytest.raises(PrecisionTimeError, match=count):
            request_of(cluster, **{count: 0})
