"""Trackers: what their own libraries write is read with the step times and settings that went in."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from precision_time.errors import CorpusError
from precision_time_integrations.importers import (
    bounded,
    deepspeed,
    kineto,
    mlflow,
    tensorboard,
    wandb,
)
from precision_time_integrations.importers.contract import ImportedRun, Importer
from precision_time_integrations.importers.curves import Curve, Point, steps_of_curves
from precision_time_integrations.importers.parameters import fields_of_parameters
from precision_time_integrations.importers.registry import importer_of, known_importer
from precision_time_integrations.importers.wire import leveldb_records, message, tf_records

STEPS = 12
SETTINGS = {
    "per_device_train_batch_size": 8,
    "bf16": True,
    "max_steps": STEPS,
    "model_name_or_path": "gpt2",
    "optim": "adamw_torch",
    "gradient_accumulation_steps": 2,
}
FIELDS = {
    "batch_size": 8,
    "precision": "bf16-mixed",
    "steps": STEPS,
    "model": "gpt2",
    "optimizer": "adamw",
    "num_microbatches": 2,
}


def read(path: Path, name: str) -> list[ImportedRun]:
    """The runs in a path, which the registry must recognize as this format."""
    found = importer_of(path)
    assert found is not None and found.name == name
    return found.read(path)


def assert_between(at_s: list[float], stamps: list[float]) -> None:
    """Each report was written after its own time stamp and before the next, on whatever clock."""
    earliest = max(stamp - at for at, stamp in zip(at_s, stamps, strict=True))
    latest = min(stamp - at for at, stamp in zip(at_s, stamps[1:], strict=False))
    assert earliest <= latest + 0.002, "one clock fits all of them, to its resolution"


def run_elsewhere(code: str, folder: Path, **environment: str) -> None:
    """Run code in a process of its own: trackers patch what they find, and keep threads."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=folder,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def mlflow_wrote(uri: str, folder: Path) -> None:
    """One run with a pause, written by MLflow itself into a store; when its steps were in stamps.json."""
    code = f"""
        import time, json, mlflow
        stamps = []
        mlflow.set_tracking_uri({uri!r})
        mlflow.set_experiment("experiment")
        with mlflow.start_run(run_name="tuned"):
            mlflow.log_params({SETTINGS!r})
            mlflow.set_tag("gpu_name", "NVIDIA H100 80GB HBM3")
            for step in range(1, {STEPS} + 1):
                time.sleep(0.02)
                stamps.append(time.time())
                mlflow.log_metric("train/loss", 1.0 / step, step=step)
                if step == 6:
                    time.sleep(0.3)
                    mlflow.log_metric("eval/loss", 0.5, step=step)
        json.dump(stamps, open("stamps.json", "w"))
    """
    run_elsewhere(code, folder, MLFLOW_ALLOW_FILE_STORE="true", MLFLOW_DISABLE_TELEMETRY="true")


@pytest.mark.parametrize(
    ("uri", "name", "kind"),
    [
        ("file:./mlruns", "mlruns", "mlflow"),
        # Its store takes the time of a hundred migrations to make.
        pytest.param(
            "sqlite:///mlflow.db",
            "mlflow.db",
            "mlflow-sqlite",
            marks=pytest.mark.nightly(
                covered_by="packages/integrations/tests/test_import_trackers.py::"
                "test_mlflow_store_gives_the_times_that_were_logged[file:./mlruns-mlruns-mlflow]"
            ),
        ),  # fmt: skip
    ],
)
def test_mlflow_store_gives_the_times_that_were_logged(
    tmp_path: Path, uri: str, name: str, kind: str
) -> None:
    mlflow_wrote(uri, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    (run,) = read(tmp_path / name, kind)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}, "only read"
    assert run.name == "tuned"
    assert dict(run.fields) == {**FIELDS, "device": "H100-SXM5-80GB"}
    assert [step.step for step in run.steps] == list(range(1, STEPS + 1))
    assert_between(
        [step.at_s or 0.0 for step in run.steps], json.loads((tmp_path / "stamps.json").read_text())
    )
    paused = [step.step for step in run.steps if step.after_pause]
    assert paused == [7], "the evaluation after step 6 is told from a slow step"
    steady = run.steady()
    # On a busy machine a sleep may be as long as a pause, too.
    assert steady is not None and steady.left_out["with an evaluation or a checkpoint"] >= 1
    assert steady.low_s >= 0.019, "of sleeps of 20 ms"


def sqlite_store(path: Path) -> None:
    """The tables of MLflow's store that are read, with one run of 250 ms a step."""
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE experiments (experiment_id INTEGER, name VARCHAR(256));"
            "CREATE TABLE runs (run_uuid VARCHAR(32), name VARCHAR(250), start_time BIGINT,"
            " lifecycle_stage VARCHAR(20), experiment_id INTEGER);"
            "CREATE TABLE params (key VARCHAR(250), value VARCHAR(8000), run_uuid VARCHAR(32));"
            "CREATE TABLE tags (key VARCHAR(250), value VARCHAR(8000), run_uuid VARCHAR(32));"
            "CREATE TABLE metrics (key VARCHAR(250), value FLOAT, timestamp BIGINT, run_uuid VARCHAR(32),"
            " step BIGINT, is_nan BOOLEAN);"
            "INSERT INTO runs VALUES ('a', 'kept', 1, 'active', 0), ('b', 'gone', 2, 'deleted', 0);"
            "INSERT INTO params VALUES ('max_steps', '500', 'a'), ('max_steps', '7', 'b');"
        )
        rows = [("loss", 1.0, 1_700_000_000_000 + 250 * step, "a", step, 0) for step in range(40)]
        rows.append(("loss", "text", "when", "a", "where", 0))  # type: ignore[arg-type]
        connection.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", rows)


def test_mlflow_database_without_deleted_runs(tmp_path: Path) -> None:
    sqlite_store(tmp_path / "mlflow.db")
    (run,) = read(tmp_path / "mlflow.db", "mlflow-sqlite")
    steady = run.steady()
    assert (run.name, dict(run.fields), len(run.steps)) == ("kept", {"steps": 500}, 40)
    assert steady is not None and steady.step_time_s == pytest.approx(0.25)


def test_mlflow_table_of_a_search_gives_the_mean_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        "run_id,experiment_id,status,metrics.train_runtime,metrics.train_steps_per_second,"
        "params.per_device_train_batch_size,params.max_steps,params.bf16,tags.mlflow.runName\n"
        "a1,0,FINISHED,50.0,2.0,16,100,True,first\n"
    )
    (run,) = read(path, "mlflow-csv")
    assert (run.name, run.fields["batch_size"]) == ("first", 16)
    measured = run.measured({"model": "gpt2", "device": "A100-SXM4-80GB", "gpus": 1})
    assert measured is not None and measured.complete
    assert measured.steady.step_time_s == pytest.approx(0.5)
    assert any("whole run" in note for note in run.notes)


def test_mlflow_exported_run(tmp_path: Path) -> None:
    points = [{"value": 1.0, "timestamp": 1671579608677 + 250 * step, "step": step} for step in range(8)]
    run = {
        "info": {"run_name": "x"}, "params": {"batch_size": "4"}, "metrics": {"loss": points}, "tags": {},
    }  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps({"system": {}, "mlflow": run}))
    (found,) = read(tmp_path / "run.json", "mlflow-run")
    steady = found.steady()
    assert steady is not None and steady.step_time_s == pytest.approx(0.25)


def test_places_named_in_a_run_of_mlflow_are_never_opened(tmp_path: Path) -> None:
    run = tmp_path / "mlruns" / "0" / "r1"
    for name in ("metrics", "params", "tags"):
        (run / name).mkdir(parents=True)
    (tmp_path / "mlruns" / "0" / "meta.yaml").write_text("experiment_id: '0'\n")
    (run / "meta.yaml").write_text("artifact_uri: ../../../../etc\nrun_name: x\n")
    secret = tmp_path / "secret"
    secret.write_text("resnet50")
    (run / "params" / "model").symlink_to(secret)
    os.mkfifo(run / "metrics" / "loss")
    (run / "metrics" / "elsewhere").symlink_to(tmp_path)
    (found,) = read(tmp_path / "mlruns", "mlflow")
    assert dict(found.fields) == {} and found.steps == ()


def test_yaml_that_stands_for_more_than_it_says_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "mlruns" / "0" / "r1"
    (run / "metrics").mkdir(parents=True)
    (tmp_path / "mlruns" / "0" / "meta.yaml").write_text("experiment_id: '0'\n")
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    (run / "meta.yaml").write_text("\n".join(lines))
    with pytest.raises(CorpusError, match="no YAML"):
        read(tmp_path / "mlruns", "mlflow")


@pytest.fixture(scope="module")
def wandb_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that W&B wrote offline."""
    folder = tmp_path_factory.mktemp("wandb")
    code = f"""
        import time, json, wandb
        settings = wandb.Settings(x_disable_stats=True, x_disable_meta=False)
        run = wandb.init(project="p", name="named", config={SETTINGS!r}, mode="offline", dir=".",
                         settings=settings)
        stamps = []
        for step in range(1, {STEPS} + 1):
            time.sleep(0.02)
            stamps.append(time.time())
            run.log({{"train/loss": 1.0 / step, "train/global_step": 10 * step}})
            if step == 6:
                time.sleep(0.3)
                run.log({{"eval/loss": 0.5, "train/global_step": 10 * step}})
        run.finish()
        json.dump(stamps, open("stamps.json", "w"))
    """
    run_elsewhere(code, folder, WANDB_SILENT="true", WANDB_ERROR_REPORTING="false")
    return folder


def test_wandb_offline_run(wandb_run: Path) -> None:
    (folder,) = (wandb_run / "wandb").glob("offline-run-*")
    (run,) = read(folder, "wandb")
    assert run.name == "named"
    assert dict(run.fields) == FIELDS
    assert [step.step for step in run.steps] == [10 * step for step in range(1, STEPS + 1)]
    assert_between(
        [step.at_s or 0.0 for step in run.steps], json.loads((wandb_run / "stamps.json").read_text())
    )
    assert [step.step for step in run.steps if step.after_pause] == [70]
    steady = run.steady()
    assert steady is not None and steady.low_s >= 0.0015, "of sleeps of 20 ms in 10 steps"


def test_link_that_is_named_is_read(wandb_run: Path, tmp_path: Path) -> None:
    """`wandb/latest-run` is one."""
    latest = wandb_run / "wandb" / "latest-run"
    if not latest.is_symlink():
        latest = tmp_path / "latest-run"
        latest.symlink_to(next((wandb_run / "wandb").glob("offline-run-*")))
    (run,) = read(latest, "wandb")
    assert len(run.steps) == STEPS
    link = tmp_path / "log"
    link.symlink_to(next((wandb_run / "wandb").glob("offline-run-*/*.wandb")))
    assert len(read(link, "wandb-log")[0].steps) == STEPS
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(CorpusError, match="no regular file"):
        known_importer("wandb-log").read(pipe)


def test_wandb_log_holds_what_wandb_reads_in_it(wandb_run: Path) -> None:
    from wandb.proto import wandb_internal_pb2 as internal

    (path,) = (wandb_run / "wandb").glob("offline-run-*/*.wandb")
    with path.open("rb") as file:
        records = [internal.Record.FromString(record) for record in leveldb_records(file)]
    history = wandb._History()
    history.read(path)
    theirs = [
        {(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.HasField("history")
    ]
    assert len(theirs) == STEPS + 1
    assert [
        {name: row[name] for name in other} for row, other in zip(history.rows, theirs, strict=True)
    ] == theirs


def test_wandb_log_that_is_cut_is_read_up_to_there(wandb_run: Path, tmp_path: Path) -> None:
    (path,) = (wandb_run / "wandb").glob("offline-run-*/*.wandb")
    content = path.read_bytes()
    cut = tmp_path / "run-x.wandb"
    counts = []
    for share in (1.0, 0.7, 0.4):
        cut.write_bytes(content[: int(share * len(content))])
        (run,) = read(cut, "wandb-log")
        counts.append(len(run.steps))
    assert counts[0] == STEPS and counts[0] >= counts[1] >= counts[2]
    assert any("is cut" in note for note in run.notes)


def test_wandb_history_that_was_exported(tmp_path: Path) -> None:
    rows = [
        {"_step": n, "_runtime": 5.0 + 0.25 * n, "_timestamp": 1.7e9 + 0.25 * n, "loss": 1.0}
        for n in range(9)
    ]
    rows.insert(5, {"_step": 5, "_runtime": 6.2, "_timestamp": 1.7e9 + 1.2, "system.gpu.0.gpu": 90.0})
    csv = tmp_path / "history.csv"
    csv.write_text("_step,_runtime,_timestamp,loss\n" + "".join(
        f"{row['_step']},{row['_runtime']},{row['_timestamp']},{row.get('loss', '')}\n" for row in rows
    ))  # fmt: skip
    lines = tmp_path / "history.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for path, kind in ((csv, "wandb-csv"), (lines, "wandb-jsonl")):
        (run,) = read(path, kind)
        steady = run.steady()
        assert steady is not None and steady.step_time_s == pytest.approx(0.25), kind
        assert set(run.missing) == {"model", "device", "batch_size", "gpus"}


def test_wandb_metadata_names_the_gpus(tmp_path: Path) -> None:
    files = tmp_path / "run-1" / "files"
    files.mkdir(parents=True)
    (files / "wandb-metadata.json").write_text('{"gpu": "NVIDIA A100-SXM4-80GB", "gpu_count": 8}')
    (files / "config.yaml").write_text("batch_size:\n  desc: null\n  value: 32\n")
    (files / "wandb-summary.json").write_text('{"_step": 200, "_runtime": 100}')
    (run,) = read(tmp_path / "run-1", "wandb")
    assert dict(run.fields) == {"batch_size": 32, "device": "A100-SXM4-80GB", "gpus": 8}
    steady = run.steady()
    assert steady is not None and steady.step_time_s == pytest.approx(0.5)
    assert any("whole run" in note for note in run.notes)


@pytest.fixture
def resumed(tmp_path: Path) -> tuple[Path, list[float]]:
    """A run in two event files, the second from step 20 on, with validation; wall times by step."""
    import tensorboardX

    folder = tmp_path / "version_0"
    at = 1_700_000_000.0
    times = []
    for start, stop, suffix in ((0, 26, ".a"), (20, 46, ".b")):
        writer = tensorboardX.SummaryWriter(str(folder), filename_suffix=suffix)
        for step in range(start, stop):
            at += 2.5 if step == start else 0.125
            times.append(at)
            writer.add_scalar("train/loss", 1.0 / (step + 1), step, walltime=at)
            writer.add_scalar("train/lr", 0.1, step, walltime=at + 0.001)
            if step % 10 == 9:
                at += 3.0
                writer.add_scalar("val/loss", 0.5, step, walltime=at)
        writer.close()
    for number, path in enumerate(sorted(folder.iterdir(), key=lambda path: path.suffix)):
        path.rename(folder / f"events.out.tfevents.170000000{number}.host{path.suffix}")
    (folder / "hparams.yaml").write_text("batch_size: 64\nprecision: 16-mixed\nlr: 0.1\n")
    return folder, times


def test_event_files_of_a_resumed_run_are_one_run(resumed: tuple[Path, list[float]]) -> None:
    folder, times = resumed
    (run,) = read(folder, "tensorboard")
    assert [step.at_s for step in run.steps] == pytest.approx(times)
    assert [step.step for step in run.steps] == [*range(26), *range(20, 46)]
    steady = run.steady()
    assert steady is not None
    assert steady.step_time_s == pytest.approx(0.125, rel=1e-6)
    assert steady.high_s == pytest.approx(0.125, rel=1e-6), "validation and the restart are in no step"
    assert run.fields == {"batch_size": 64, "precision": "fp16-mixed"}


def test_event_files_hold_what_tensorboard_reads_in_them(resumed: tuple[Path, list[float]]) -> None:
    from tensorboard.backend.event_processing import event_file_loader as loader

    for path in resumed[0].glob("events.*"):
        theirs = [
            (value.tag, Point(event.step, event.wall_time))
            for event in loader.RawEventFileLoader(str(path)).Load()
            for event in [loader.event_pb2.Event.FromString(event)]
            for value in event.summary.value
        ]
        assert sorted(tensorboard.scalar_points(path), key=repr) == sorted(theirs, key=repr)


def test_hyperparameters_of_tensorboard(tmp_path: Path) -> None:
    from torch.utils import tensorboard as torch_writer

    writer = torch_writer.SummaryWriter(str(tmp_path / "run"))
    for step in range(4):
        writer.add_scalar("loss", 1.0, step, walltime=1.7e9 + 0.5 * step)
    writer.add_text("args", json.dumps({"per_device_train_batch_size": 4, "fp16": True}))
    writer.add_hparams({"model": "resnet50", "gradient_checkpointing": True, "num_gpus": 2}, {"hp/loss": 1.0})
    writer.close()
    (run,) = read(tmp_path / "run", "tensorboard")
    assert run.fields == {
        "batch_size": 4, "precision": "fp16-mixed", "model": "resnet50", "recompute": "full", "gpus": 2,
    }  # fmt: skip
    steady = run.steady()
    assert steady is not None and steady.step_time_s == pytest.approx(0.5)


def test_event_file_that_is_cut_is_read_up_to_there(
    resumed: tuple[Path, list[float]], tmp_path: Path
) -> None:
    (path,) = resumed[0].glob("*.a")
    cut = tmp_path / "events.out.tfevents.1700000000.host"
    cut.write_bytes(path.read_bytes()[:-7])
    (run,) = read(cut, "tensorboard-file")
    assert len(run.steps) == 26
    assert any("is cut" in note for note in run.notes)
    cut.write_bytes(os.urandom(5000))
    with pytest.raises(CorpusError, match="no event file"):
        tensorboard._read_file(cut)


def test_curves_of_epochs_are_told_from_those_of_steps() -> None:
    points = Curve(Point(epoch, 60.0 * epoch) for epoch in range(1, 11))
    assert steps_of_curves({"loss": points}, epochs=10).reports_epochs
    assert steps_of_curves({"epoch_loss": points}).reports_epochs
    assert not steps_of_curves({"loss": points}, epochs=3).reports_epochs


def test_samplers_of_the_machine_are_no_steps() -> None:
    sampled = Curve(Point(step, 10.0 * step) for step in range(1000))
    trained = Curve(Point(step, 0.5 * step) for step in range(20))
    found = steps_of_curves({"system/gpu_0_utilization_percentage": sampled, "loss": trained})
    assert [step.at_s for step in found.steps] == [point.at_s for point in trained]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"precision": "16", "accumulate_grad_batches": "4"},
            {"precision": "fp16-mixed", "num_microbatches": 4},
        ),
        ({"mixed_precision": "no", "epochs": 3}, {"precision": "fp32", "epochs": 3}),
        (
            {"deepspeed": {"train_micro_batch_size_per_gpu": 2, "train_batch_size": 64,
                           "bf16": {"enabled": True},
                           "zero_optimization": {"stage": 3}}},
            {"batch_size": 2, "precision": "bf16-mixed", "zero_stage": 3},
        ),
        ({"train_batch_size": 64}, {"batch_size": 64}),
        ({"per_device_eval_batch_size": 64, "eval_batch_size": 8, "max_steps": -1, "num_workers": 8}, {}),
        ({"model_name_or_path": "/data/models/llama", "torch_dtype": "bfloat16"}, {}),
        (
            {"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
             "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
             "_name_or_path": "/scratch/weights"},
            {"model": "llama3-8b"},
        ),
        ({"model_type": "bert", "num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12}, {}),
        ({"batch_size": "many", "max_steps": "1e400", "bf16": None, "optim": "own"}, {}),
    ],
)  # fmt: skip
def test_settings_of_trainers(given: dict[str, object], expected: dict[str, object]) -> None:
    fields, _ = fields_of_parameters(given)
    assert fields == expected


def test_packed_file_that_fills_a_disk_is_refused(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "trace.json.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(b'{"traceEvents": [')
        for _ in range(80):
            file.write(b" " * 1024 * 1024)
    assert path.stat().st_size < 100_000
    started = time.process_time()
    with pytest.raises(CorpusError, match="as no trace does"):
        known_importer("pytorch-profiler").read(path)
    assert time.process_time() - started < 10.0


def test_database_whose_query_never_ends_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mlflow.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE experiments (x); CREATE TABLE params (key, value, run_uuid);"
            "CREATE TABLE tags (key, value, run_uuid);"
            "CREATE TABLE metrics (key, step, timestamp, value, run_uuid);"
            "CREATE TABLE runs (x);"
            "ALTER TABLE runs RENAME TO hidden;"
            "CREATE VIEW runs AS"
            " WITH RECURSIVE n(run_uuid) AS (SELECT 1 UNION ALL SELECT run_uuid + 1 FROM n)"
            " SELECT run_uuid, 'a' AS name, 'active' AS lifecycle_stage, run_uuid AS start_time FROM n;"
        )
    monkeypatch.setattr(bounded, "_MOST_SQL_PIECES", 20)
    with pytest.raises(CorpusError, match="interrupted"):
        mlflow._read_database(path)


FILES = [item for module in (mlflow, wandb, tensorboard, kineto, deepspeed) for item in module.IMPORTERS]
HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "zeros": bytes(5000),
    "binary": bytes(range(256)) * 20,
    "json of others": b'{"traceEvents": {"a": 1}, "mlflow": 3, "_step": null}',
    "json list": b'[{"ph": "X", "ts": "now", "dur": {}}, 1, null, "x"]',
    "deep": b"[" * 100_000,
    "csv": b"run_id,experiment_id,_step,_runtime,Range,Instances,training_iteration,time_this_iter_s\n1,2\n",
    "sqlite head": b"SQLite format 3\x00" + bytes(4000),
    "wandb head": b":W&B\xe1\xbe\x00" + b"\xff" * 300,
    "huge record": b"\xff" * 8 + bytes(100),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("item", FILES, ids=lambda item: item.name)
def test_files_of_others_are_refused_in_words(item: Importer, content: bytes, tmp_path: Path) -> None:
    names = {
        "mlflow-run": "run.json",
        "tensorboard-file": "events.out.tfevents.1.h",
    }
    path = tmp_path / names.get(item.name, "trace.json" if item.name == "pytorch-profiler" else "file")
    path.write_bytes(content)
    item.matches(path, content[:65536])
    try:
        for run in item.read(path):
            run.steady()
    except CorpusError as error:
        assert "To fix:" in str(error)


def test_message_of_a_varint_without_end() -> None:
    with pytest.raises(ValueError, match="cut"):
        message(b"\xff" * 50)


def test_record_of_a_terabyte_is_not_allocated(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes((1 << 40).to_bytes(8, "little") + bytes(8))
    with path.open("rb") as file, pytest.raises(ValueError, match="is none"):
        list(tf_records(file))


def test_database_that_is_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    sqlite_store(path)
    content = path.read_bytes()
    for damaged in (
        content[: len(content) // 2],
        content.replace(b"lifecycle_stage", b"life\xff\xfecle_stage"),
    ):
        path.write_bytes(damaged)
        importer_of(path)  # looks at its tables, and does not raise
        with pytest.raises(CorpusError, match="damaged"):
            mlflow._read_database(path)
