"""No model hub is asked for a name: what is not on this machine is refused, before torch is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from precision_time.workload.hf_config import is_absent_hub_id

NAME = "someone/some-model"
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 1000, "auto_map": {"AutoConfig": "code.Config"},
}  # fmt: skip
_SCRIPT = """
import json, os, socket, sys

asked = []


def refuse(*where, **_):
    asked.append(str(where))
    raise OSError("no network in tests")


socket.getaddrinfo = socket.create_connection = socket.socket.connect = refuse


def text_of(work):
    try:
        return str(work())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def predicted(name):
    from precision_time import predict_time

    return predict_time(name, device="T4", batch_size=1, precision="fp32").model


def measured(name):
    from precision_time_integrations.measure.steps.tasks import _spec

    return _spec(name).library


works = {"predict": predicted, "measure": measured}
said = [text_of(lambda: works[work](name)) for work, name in json.loads(sys.argv[1])]
json.dump({"said": said, "asked": asked, "torch": "torch" in sys.modules}, sys.stdout)
"""


def cached(hub: Path, name: str = NAME) -> None:
    """Put the configuration of a model into the cache, as a download leaves it."""
    folder = hub / "hub" / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0123abcd")
    (folder / "snapshots" / "0123abcd").mkdir(parents=True)
    (folder / "snapshots" / "0123abcd" / "config.json").write_text(json.dumps(CONFIG))


def answers(hub: Path, *asked: tuple[str, str]) -> Any:
    """What each (predict or measure, name) says in one process, whom it asked, whether torch was loaded."""
    result = subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps(asked)], capture_output=True, text=True, timeout=300,
        check=True, stdin=subprocess.DEVNULL, env={**os.environ, "HF_HOME": str(hub), "HF_HUB_OFFLINE": "0"},
    )  # fmt: skip
    return json.loads(result.stdout.splitlines()[-1])


def test_an_id_that_is_not_here_is_refused_before_torch_is_loaded(tmp_path: Path) -> None:
    names = (NAME, "a/b/c", "/nowhere/model")
    found = answers(tmp_path, *(("predict", name) for name in names))
    assert found["asked"] == []
    assert found["torch"] is False
    for said, name in zip(found["said"], names, strict=True):
        assert said.startswith("UnknownNameError")
        for way in (name, "hub is not asked", "config.json", "file.py:object"):
            assert way in said


@pytest.mark.nightly(
    covered_by="tests/capture/test_capture_sources.py::test_no_configuration_reaches_the_network"
)
def test_the_local_cache_is_read_and_nobody_is_asked(tmp_path: Path) -> None:
    cached(tmp_path)
    names = ("some-old-id", "hf-hub:someone/some-model", "timm:hf-hub:someone/x")
    found = answers(
        tmp_path, ("predict", NAME), ("measure", NAME), ("measure", "someone/other"),
        *(("predict", name) for name in names),
    )  # fmt: skip
    assert found["asked"] == []
    assert found["torch"] is True
    predicted, measured, *others = found["said"]
    assert (predicted, measured) == (NAME, "transformers")
    assert all("Error" in said and "To fix" in said for said in others)


def test_ids_of_the_table_are_known_and_names_are_no_ids() -> None:
    from precision_time.workload.families.tables import read_toml

    known = next(name for name in read_toml("hf_models.toml")["models"] if "/" in name)
    assert not is_absent_hub_id(known)
    assert not is_absent_hub_id("resnet50")
    assert is_absent_hub_id("not an id/of anything?")
