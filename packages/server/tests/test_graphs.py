"""Graphs that callers send: what a capture writes is taken, everything else refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from precision_time.client.operations import graph_document
from precision_time.errors import PrecisionTimeError
from precision_time.workload.resolve import load_workload
from precision_time_server.graphs import graph_of


def changed(**graph: Any) -> dict[str, Any]:
    document = graph_document(load_workload("resnet50").graph)
    document["graph"] |= graph
    return document


def with_body(**fields: Any) -> dict[str, Any]:
    document = changed()
    document["graph"]["bodies"][0] |= fields
    return document


@pytest.mark.parametrize(
    "document",
    [
        {}, {"graph": None, "layers": []}, {**changed(), "more": 1}, {**changed(), "layers": []},
        changed(schema=2), changed(name=7), changed(name="x" * 1000), changed(params=float("nan")),
        changed(params=-1.0), changed(params=1e300), changed(params=True), changed(sequence=[]),
        changed(sequence=[[]]), changed(sequence=[[-1]]), changed(sequence=[[10**6]]),
        changed(sequence=[["a"]]), changed(sequence=[[0, 5]] * 3), changed(sequence=[[0, 0]]),
        changed(bodies=[]), changed(unpriced=[]), changed(notes="x" * 10**6), changed(image_size=0),
        with_body(m=float("inf")), with_body(m="1"), with_body(m=1e30), with_body(repeat=10**12),
        with_body(repeat=0), with_body(op_class="none"), with_body(op=[]), with_body(inputs=[5]),
        with_body(__class__="x"), with_body(sequential_steps=10**12), with_body(kernel=-1),
    ],
)  # fmt: skip
def test_malformed_graph_is_refused(document: Mapping[str, Any]) -> None:
    with pytest.raises(PrecisionTimeError):
        graph_of(document)
    with pytest.raises(PrecisionTimeError):
        graph_of(json.dumps(document).encode())


def test_graph_survives_as_data() -> None:
    graph = load_workload("llama3-8b").graph
    assert graph_of(json.dumps(graph_document(graph)).encode()) == graph == graph_of(graph_document(graph))
