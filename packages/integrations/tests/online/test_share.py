"""What is shared of own runs: their numbers, the same analytical time, none of their owner's words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from precision_time.cli.main import main
from precision_time.corpus.own import read_own_steps
from precision_time.cost.job import Jobs
from precision_time.cost.step import price
from precision_time.errors import OutputError, PrecisionTimeError
from precision_time.request.schema import RequestFields
from precision_time_integrations.online import offer
from precision_time_integrations.online.share import shared_runs

from .test_offer import CPU, RESNET, own_graph, run

SECRET = "zebra7secret"


def everything(path: Path) -> str:
    return "".join(file.read_text() for file in path.parent.iterdir())


def test_the_same_jobs_without_names(tmp_path: Path) -> None:
    store = tmp_path / "mine" / "runs.csv"
    mine = {"device": "CPU-of-bob", "precision": "fp32", "custom": CPU}
    llama = {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
             "intermediate_size": 512, "vocab_size": 1000, "_name_or_path": f"/home/{SECRET}"}  # fmt: skip
    for record in (
        run(0.1, **RESNET, batch_size=64, gpus=16, network="400g-ib", optimizer="lamb"),
        run(0.2, model="meta-llama/Llama-3.1-8B", device="8xH100", precision="bf16-mixed", batch_size=1,
            seq_len=4096, zero_stage=3, adapter="lora", lora_rank=16, lora_targets="q,v", recompute="full"),
        run(0.3, model="bert-large-uncased", device="V100-SXM2-32GB", precision="fp16-mixed", batch_size=8,
            task=f"{SECRET}-squad", dataset=SECRET),
        run(0.4, model=own_graph(), batch_size=32, **mine),
        run(0.5, model=llama, batch_size=2, seq_len=128, **mine),
        run(0.6, model=SECRET, sizes={"hidden": 512, "layers": 4, "heads": 8}, seq_len=256, batch_size=4,
            device="A100-SXM4-40GB", precision="bf16-mixed", zero_stage=2, gpus=4),
    ):  # fmt: skip
        offer.add_run(record, store=store)
    out = tmp_path / "theirs" / "out.csv"
    out.parent.mkdir()
    shared = shared_runs(store)
    files = shared.write(out)
    assert not shared.left_out and [file.name for file in files] == [
        "out.csv", "out.models.json", "out.hardware.toml"
    ]  # fmt: skip
    text = everything(out).lower()
    for word in (SECRET, "bob", "secret_head", str(tmp_path), "home"):
        assert word.lower() not in text
    before = {step.measured_s: step.job for step in read_own_steps(store) if step.job}
    after = {step.measured_s: step.job for step in read_own_steps(out) if step.job}
    assert before.keys() == after.keys() and len(after) == 6
    for measured_s, job in before.items():
        times = [price(Jobs.at(each)).step_time_s[0] for each in (job, after[measured_s])]
        assert times[1] == pytest.approx(times[0], rel=1e-6)
    with pytest.raises(OutputError, match="there already"):
        shared.write(out)


@pytest.mark.parametrize("base", [RESNET, {**RESNET, "model": "llama3.2-1b", "seq_len": 512}])
def test_no_field_carries_a_word_out(tmp_path: Path, base: dict[str, Any]) -> None:
    """Any text of a request may be private: whatever takes the word refuses it or does not share it."""
    fields = RequestFields.model_fields.keys() & offer.MEASURED
    carried = 0
    for index, name in enumerate(sorted(fields)):
        for value in (SECRET, f"{SECRET},q", {SECRET: 1}, {"vocab": SECRET}):
            store = tmp_path / f"{index}" / "runs.csv"
            try:
                offer.add_run(run(**{**base, "batch_size": 8, "gpus": 2, name: value}), store=store)
                read_own_steps(store)
            except PrecisionTimeError:
                store.unlink(missing_ok=True)
                continue
            carried += SECRET in store.read_text()
            assert SECRET not in shared_runs(store).text(), name
            store.unlink()
    assert carried >= 3  # free texts are offered, and stay


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, out = tmp_path / "runs.csv", tmp_path / "out.csv"
    with pytest.raises(SystemExit) as stopped:
        main(["share", str(out), "--from", str(store)])
    assert stopped.value.code == 2 and "share_with_corpus=True" in capsys.readouterr().err
    offer.add_run(run(**RESNET, batch_size=64), store=store)
    with pytest.raises(SystemExit) as stopped:
        main(["share", str(out), "--from", str(store), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert stopped.value.code in (0, None)
    assert answer == {
        "files": [str(out)],
        "runs": 1,
        "models_as_operators": [],
        "devices_as_figures": [],
        "left_out": {},
    }
