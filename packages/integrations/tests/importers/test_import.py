"""States and tables of trainers, folders of them, and the table of measured steps that is written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from precision_time.corpus.own import read_own_steps
from precision_time.errors import ConfigError, CorpusError, UnknownNameError
from precision_time_integrations.importers import registry
from precision_time_integrations.importers.api import import_runs, measured_runs, write_measurements
from precision_time_integrations.importers.contract import ImportedRun, Importer, LoggedStep, given_fields
from precision_time_integrations.importers.hf_state import read_results, read_state
from precision_time_integrations.importers.tables import read_metrics, read_ultralytics

from .logs import MEGATRON, MEGATRON_OLD

# transformers 5.23 on this project's machine (BERT of 2 layers, 30 steps with two evaluations, 2026-11-23).
HF_STATE: dict[str, Any] = {
    "epoch": 4.3076923076923075,
    "eval_steps": 10,
    "global_step": 30,
    "log_history": [
        {"epoch": 1.4615384615384617, "loss": 1.2459095954895019, "step": 10},
        {"epoch": 1.4615384615384617, "eval_loss": 0.6935, "eval_runtime": 0.0258, "step": 10},
        {"epoch": 2.9230769230769234, "eval_loss": 0.6930, "eval_runtime": 0.0224, "step": 20},
        {"epoch": 4.3076923076923075, "eval_loss": 0.6935, "eval_runtime": 0.0442, "step": 30},
        {
            "epoch": 4.3076923076923075,
            "step": 30,
            "total_flos": 757859328.0,
            "train_loss": 1.293360996246338,
            "train_runtime": 0.5981,
            "train_samples_per_second": 802.489,
            "train_steps_per_second": 50.156,
        },
    ],
    "max_steps": 30,
    "train_batch_size": 8,
}


def written(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_trainer_state_gives_the_time_of_a_step_without_evaluation(tmp_path: Path) -> None:
    [run] = read_state(written(tmp_path, "trainer_state.json", HF_STATE))
    steady = run.steady()
    assert steady is not None
    assert steady.step_time_s == pytest.approx((0.5981 - 0.0258 - 0.0224 - 0.0442) / 30)
    assert run.fields["global_batch_size"] == 16  # 8 of the state x 2 accumulated: 802.489 / 50.156
    assert steady.steps_used == 30


def test_steps_of_a_run_that_ended_early_are_those_it_made(tmp_path: Path) -> None:
    last = {
        "step": 20,
        "train_runtime": 10.0,
        "train_samples_per_second": 24.0,
        "train_steps_per_second": 3.0,
    }
    state = {"log_history": [last], "max_steps": 30, "global_step": 20, "train_batch_size": 8}
    [run] = read_state(written(tmp_path, "trainer_state.json", state))
    steady = run.steady()
    assert steady is not None
    assert steady.step_time_s == pytest.approx(0.5)  # and not 1 / train_steps_per_second, which counts 30
    assert any("counts 30 steps and 20 were made" in note for note in run.notes)


def test_a_resumed_trainer_state_has_two_trainings(tmp_path: Path) -> None:
    history = [{"step": 100, "train_runtime": 50.0}, {"step": 400, "train_runtime": 60.0}]
    [run] = read_state(written(tmp_path, "trainer_state.json", {"log_history": history, "max_steps": 400}))
    assert [step.step_time_s for step in run.steps] == [0.5, 0.2]


def test_a_checkpoint_of_a_run_has_no_times(tmp_path: Path) -> None:
    state = {**HF_STATE, "log_history": HF_STATE["log_history"][:2]}
    [run] = read_state(written(tmp_path, "checkpoint-10/trainer_state.json", state))
    assert run.steady() is None
    assert "before training ended" in run.notes[0]


def test_train_results_and_the_card_beside_them(tmp_path: Path) -> None:
    card = "---\nbase_model: bert-base-cased\n---\n- train_batch_size: 8\n- num_devices: 4\n"
    written(
        tmp_path, "README.md", card + "- total_train_batch_size: 32\n- mixed_precision_training: Native AMP\n"
    )
    results = {
        "epoch": 3.0,
        "train_runtime": 44.0,
        "train_samples_per_second": 250.1,
        "train_steps_per_second": 7.84,
    }
    [run] = read_results(written(tmp_path, "train_results.json", results))
    assert {name: run.fields[name] for name in ("model", "batch_size", "gpus", "precision")} == {
        "model": "bert-base-cased", "batch_size": 8, "gpus": 4, "precision": "fp16-mixed"
    }  # fmt: skip
    steady = run.steady()
    assert steady is not None
    assert steady.step_time_s == pytest.approx(44.0 / 345)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"log_history": 3}', "\0"])
def test_a_broken_state_says_so(text: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="To fix"):
        read_state(written(tmp_path, "trainer_state.json", text))


# Columns: ultralytics 8.3.9 and later (issue 21116); times are made up, the arithmetic is what is tested.
def test_ultralytics_needs_the_steps_of_an_epoch(tmp_path: Path) -> None:
    written(
        tmp_path,
        "args.yaml",
        "model: yolov8n.pt\nbatch: 16\nimgsz: 640\nepochs: 3\ndevice: '0,1'\namp: true\n",
    )
    text = "epoch,time,train/box_loss,lr/pg0\n" + "".join(f"{n},{10.0 * n},1.0,0.01\n" for n in range(1, 6))
    [run] = read_ultralytics(written(tmp_path, "results.csv", text))
    assert run.fields["gpus"] == 2
    assert run.steady() is None
    measured = run.measured({"samples": 1600})
    assert measured is not None
    assert measured.steady.step_time_s == pytest.approx(10.0 / 100)


def test_lightning_metrics_have_times_where_the_user_logged_them(tmp_path: Path) -> None:
    [bare] = read_metrics(written(tmp_path, "a/metrics.csv", "epoch,loss,step\n0,1.0,4\n0,0.9,9\n"))
    assert bare.steady() is None
    assert "self.log('step_time'" in bare.notes[0]
    rows = "".join(f"0,{0.2 + 0.001 * (n % 3)},{n}\n0,,{n}\n" for n in range(4, 60, 5))
    [run] = read_metrics(written(tmp_path, "b/metrics.csv", "epoch,step_time,step\n" + rows + "0,0.002,9"))
    steady = run.steady()
    assert steady is not None
    assert 0.2 <= steady.step_time_s <= 0.202


def test_a_folder_is_walked_and_the_table_is_read_back(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    written(runs, "one/train.log", MEGATRON_OLD)
    written(runs, "two/out/trainer_state.json", HF_STATE)
    written(runs, "two/out/all_results.json", {"train_runtime": 0.5981, "train_steps_per_second": 50.1})
    written(runs, "notes.txt", "nothing of use\n")
    written(runs, "three/trainer_state.json", "{")
    (runs / "loop").symlink_to(runs)
    found = import_runs([runs], given={"device": "A100-SXM4-80GB"})
    assert sorted(run.origin for run in found.runs) == [
        "one/train.log, line 16",
        "two/out/trainer_state.json",
    ]
    assert len(found.skipped) == 1
    assert found.others == 2
    out = tmp_path / "measured.csv"
    write_measurements(out, measured_runs(found.runs))
    [step] = read_own_steps(out)
    assert step.measured_s == pytest.approx(127.8045)
    assert step.job is not None
    assert step.job.layout.tp == 2
    assert step.job.layout.global_batch_size == 1024
    assert (
        step.job.workload.graph.num_layers == 40 if hasattr(step.job.workload.graph, "num_layers") else True
    )


def test_what_is_missing_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    found = import_runs([written(tmp_path, "train.log", MEGATRON)])
    assert found.runs[0].missing == ("model", "device", "gpus", "batch_size")
    with pytest.raises(CorpusError, match=r"--set device=H100-SXM5-80GB .*--set model=llama3-8b"):
        write_measurements(tmp_path / "out.csv", measured_runs(found.runs))
    assert not (tmp_path / "out.csv").exists()


def test_wrong_arguments(tmp_path: Path) -> None:
    log = written(tmp_path, "train.log", MEGATRON)
    with pytest.raises(UnknownNameError, match="megatron"):
        import_runs([log], form="megatrn")
    with pytest.raises(CorpusError, match="format nanogpt"):
        import_runs([log], form="nanogpt")
    with pytest.raises(CorpusError, match="does not exist"):
        import_runs([tmp_path / "nope.log"])
    with pytest.raises(ConfigError, match="--set"):
        given_fields(["devise=A100"])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(CorpusError, match="precision-time watch"):
        import_runs([pipe])


def test_an_importer_of_a_plugin_comes_before_any_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path) -> list[ImportedRun]:
        steps = [LoggedStep(step=1, step_time_s=float(path.read_text()))]
        return [ImportedRun(name="mine", origin=path.name, importer="mine", steps=steps)]

    mine = Importer(
        name="mine", description="a number", matches=lambda path, head: path.suffix == ".txt", read=read
    )
    monkeypatch.setattr(registry, "loaded", lambda group: {"mine": mine} if group == "importers" else {})
    [run] = import_runs([written(tmp_path, "step.txt", "0.25")]).runs
    assert run.importer == "mine"
    assert run.steps[0].step_time_s == 0.25
