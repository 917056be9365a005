"""The zoo: published figures of the shipped graphs, other image sizes, damaged archives."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from precision_time.errors import CaptureError, ConfigError, UnknownNameError
from precision_time.workload import zoo
from precision_time.workload.graph import graph_to_json
from precision_time.workload.zoo import load_zoo_graph, zoo_index

HERE = Path(__file__).parent
MODELS = HERE.parents[1] / "data" / "zoo_models.csv"


def table(path):
    with path.open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


@pytest.mark.parametrize("row", table(HERE / "published_vision.csv"), ids=lambda row: row["model"])
def test_published_figures(row):
    size = int(row["image_size"])
    graph = load_zoo_graph(row["model"], size)
    assert graph.params / 1e6 == pytest.approx(float(row["params_m"]), rel=0.01)
    exact = size in zoo_index()[row["model"]].stored_sizes
    assert graph.forward_flops / 2e9 == pytest.approx(float(row["gmacs"]), rel=0.01 if exact else 0.03)
    assert graph.params == sum(node.param_elems * node.repeat for node in graph.nodes)


def test_every_timm_name_is_there():
    missing = {row["model"] for row in table(MODELS)} - set(zoo_index())
    assert not missing


def test_parameters_of_all_models_against_timm():
    known_wrong = {"convnext_tiny_in22ft1k", "convnext_tiny_384_in22ft1k"}  # published as the base model
    known_wrong |= {"convnext_small_in22ft1k", "convnext_small_384_in22ft1k"}
    far = {}
    for row in table(MODELS):
        entry = zoo_index().get(row["model"])
        if entry is None or not row["params_m"] or row["model"] in known_wrong:
            continue
        if abs(entry.params / 1e6 - float(row["params_m"])) > 0.01 * float(row["params_m"]) + 0.005:
            far[row["model"]] = (entry.params, row["params_m"])
    assert not far


def test_index_agrees_with_graphs():
    for name in ("resnet50", "vit_base_patch16_224", "tf_efficientnet_b5_ap", "xcit_tiny_12_p8_384_dist"):
        entry, graph = zoo_index()[name], load_zoo_graph(name)
        assert entry.params == graph.params
        assert entry.forward_flops == graph.forward_flops
        assert entry.image_size == graph.image_size in entry.stored_sizes


def test_aliases_share_a_graph():
    assert zoo_index()["tf_efficientnet_b5_ap"].graph == zoo_index()["tf_efficientnet_b5"].graph
    assert load_zoo_graph("gluon_resnet50_v1b").nodes == load_zoo_graph("resnet50").nodes


def test_families():
    assert zoo_index()["resnet50"].family == "cnn"
    assert zoo_index()["vit_base_patch16_224"].family == "vit"


@pytest.mark.parametrize(
    ("name", "stored", "wanted", "tolerance"),
    [
        ("resnet50", 224, 448, 0.001),
        ("vit_base_patch16_224", 224, 384, 0.02),
        ("efficientnet_b0", 224, 240, 0.02),
    ],
)
def test_other_image_sizes_are_scaled(name, stored, wanted, tolerance):
    published = {
        "resnet50": 16.353,
        "vit_base_patch16_224": 55.48,
        "efficientnet_b0": 0.386 * (240 / 224) ** 2,
    }
    graph = load_zoo_graph(name, wanted)
    assert graph.image_size == wanted
    assert graph.params == load_zoo_graph(name, stored).params
    assert graph.forward_flops / 2e9 == pytest.approx(published[name], rel=tolerance)
    if wanted not in zoo_index()[name].stored_sizes:
        assert str(wanted) in graph.notes


def test_reading_needs_no_torch():
    code = (
        "import sys; from precision_time.workload.zoo import load_zoo_graph; load_zoo_graph('resnet50'); "
        "print('torch' in sys.modules)"
    )
    paths = {**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=paths)
    assert done.stdout.strip() == "False"


def test_errors():
    with pytest.raises(UnknownNameError, match="resnet50"):
        load_zoo_graph("resnet5O")
    with pytest.raises(ConfigError, match="side length"):
        load_zoo_graph("resnet50", -3)


def small_archive():
    graph = json.dumps(graph_to_json(load_zoo_graph("resnet18")))
    index = json.dumps({"schema": zoo.ZOO_SCHEMA_VERSION, "defaults": {}, "entries": {}})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("graphs/resnet18@224.json", graph)
        archive.writestr("index.json", index)
    return buffer.getvalue()


def test_whole_archive_reads():
    archive = zoo.open_archive(small_archive())
    assert zoo.read_graph(archive, "resnet18", 224).params == load_zoo_graph("resnet18").params
    assert len(zoo.read_index(archive)) == 0


@pytest.mark.parametrize("keep", [0, 10, 500])
def test_truncated_archives_are_refused(keep):
    with pytest.raises(CaptureError, match="To fix"):
        zoo.open_archive(small_archive()[:keep])


def test_flipped_bytes_are_noticed():
    data = bytearray(small_archive())
    data[200:220] = bytes(20)
    with pytest.raises(CaptureError, match=r"resnet18@224.json.*damaged"):
        zoo.read_graph(zoo.open_archive(bytes(data)), "resnet18", 224)


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"schema": 99}', '{"schema": 1, "entries": 3, "defaults": {}}']
)
def test_malformed_members_are_refused(content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("index.json", content)
        archive.writestr("graphs/x.json", content)
    opened = zoo.open_archive(buffer.getvalue())
    with pytest.raises(CaptureError):
        zoo.read_index(opened)
    with pytest.raises(CaptureError):
        zoo.read_graph(opened, "x", None)
