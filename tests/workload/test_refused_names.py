"""Names that are known and cannot be built: refused at once, with the reason and the road that works."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from precision_time.errors import UnknownNameError
from precision_time.request import captured
from precision_time.request.request import Request
from precision_time.workload.families.tables import read_toml, unsupported
from precision_time.workload.resolve import canonical_name, load_workload, search_models

NAMES = (
    *("graphsage", "GraphSAGE", "GAT", "gatv2", "gin-ogbg-molpcba", "egnn", "SchNet"),
    *("StyleGAN3", "stylegan3-t", "stylegan3-r-1024", "BigGAN-128"),
    *("I3D", "i3d_r50", "SlowOnly", "slowonly_r50", "slowfast-r101", "X3D_M", "bmn", "STGCN"),
    *("rwkv7", "RWKV-7-2.9B", "sam2.1", "RTDETR", "rtdetrv2-r50", "yolo12", "yolov12n", "yolov13"),
    *(
        "SVD",
        "stable-video-diffusion",
        "CogVideoX-5b",
        "PSPNet",
        "deeplabv3+",
        "SASRec",
        "BERT4Rec",
        "LightGCN",
    ),
    *("ppo", "SAC", "muzero", "impala", "OpenVLA-7b"),
    *("SimCLR", "moco-v3", "BYOL", "barlow-twins", "pix2pix", "ddpm", "Wan2.2-T2V-A14B", "Conformer-L"),
    *("mask-rcnn-fbnet_default", "imagen-base-2b", "kervresnet34", "bidaf", "baidunet9p"),
)
ALSO = ("efficientvit_m4", "efficientvit-m0")
"""timm has them: they are captured where it is installed."""


@pytest.mark.parametrize("name", [*NAMES, *ALSO])
def test_the_error_has_the_reason_the_road_and_no_other_model(name: str) -> None:
    with pytest.raises(UnknownNameError) as refused:
        load_workload(name)
    text = str(refused.value)
    assert "It cannot be built by its name: " in text and "file.py:object" in text
    assert "own-model.md" in text and "Did you mean" not in text and "sizes (hidden" not in text
    assert not refused.value.nearest
    guide = Path(__file__).parents[2] / re.findall(r"docs/\S+\.md", text)[0]
    assert "module" in guide.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_no_package_is_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(captured, "captured", lambda model, request: asked.append(model))
    with pytest.raises(UnknownNameError):
        Request.of({"model": name, "device": "T4"}).resolve()
    assert not asked


def test_what_a_package_has_is_captured_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def capture(model: object, request: object) -> None:
        asked.append(model)
        raise UnknownNameError(kind="model", name=str(model), known=(), hint="")

    monkeypatch.setattr(captured, "captured", capture)
    for name in ("efficientvit_m4", "a-name-nobody-met"):
        with pytest.raises(UnknownNameError):
            Request.of({"model": name, "device": "T4"}).resolve()
    assert asked == ["efficientvit_m4", "a-name-nobody-met"]


def test_nothing_heavy_is_loaded() -> None:
    program = """
import json, sys
from precision_time.cli.main import main
for name in json.loads(sys.argv[1]):
    try:
        main(["predict", name, "-d", "T4"])
    except SystemExit as end:
        assert end.code == 2, (name, end.code)
print([name for name in ("torch", "timm", "transformers", "huggingface_hub") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(NAMES[:6])], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip().endswith("[]"), done.stdout + done.stderr
    assert done.stderr.count("file.py:object") == len(NAMES[:6])


def test_a_search_still_offers_the_nearest() -> None:
    assert any("stylegan2" in info.name for info in search_models("stylegan3"))


def test_reasons_are_sentences_and_name_only_models_that_are_known() -> None:
    data = read_toml("unsupported.toml")
    reasons = [*data["reasons"].values(), *(kind["why"] for kind in data["kind"])]
    assert all(reason.endswith(".") for reason in reasons)
    for named in ("r3d-18", "mc3-18", "r2plus1d-18", "tsn-r50", "tsm-r50", "stylegan2", "unet", "rgat"):
        assert load_workload(named).graph.params > 0.0


@pytest.mark.parametrize("name", ["gate-7b", "ginger", "macbert", "edmonton-7b", "resnet5", "tsm-r50x"])
def test_other_unknown_names_keep_their_offers(name: str) -> None:
    assert not unsupported(canonical_name(name))
