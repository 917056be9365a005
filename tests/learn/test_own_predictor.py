"""A predictor of the user's own: trained, named in every way, refused where something of it is another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from precision_time import predict_time
from precision_time.cli.main import main
from precision_time.corpus.store import corpus_store
from precision_time.errors import NotFittedError
from precision_time.learn import training
from precision_time.learn.artifact import PREDICTOR_VARIABLE, load_predictor, shipped_predictor
from precision_time.learn.measured import MeasuredTable, measured_table
from precision_time.learn.novelty import KINDS
from precision_time.learn.training import OutOfFold
from precision_time.predict.compare import predict_many
from precision_time.request.files import read_requests

JOB: dict[str, Any] = {
    "model": "resnet50", "device": "A100-SXM4-80GB", "gpus": 8, "precision": "fp16-mixed", "batch_size": 192,
}  # fmt: skip
MEASURED_S = 0.384
"""Two and a half times what the shipped predictor says: a cluster with something wrong."""


def run(*words: str) -> int:
    """Exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0)


def few_rows(_: Sequence[Any], **__: Any) -> MeasuredTable:
    """A small corpus in the place of the whole one."""
    return measured_table(corpus_store().measurements(model="resnet50", usable_only=True)[::40])


def made_up_folds(table: MeasuredTable, *_: Any, **__: Any) -> OutOfFold:
    """Held-out predictions that cost no fit."""
    n = len(table)
    seconds = table.jobs.analytical_s * (1.0 + 0.2 * np.sin(np.arange(n)))
    return OutOfFold(
        step_time_s=seconds,
        folds=np.zeros(n, int),
        novelty=np.zeros((n, len(KINDS))),
        exposed_share=np.zeros(n),
    )


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `train` makes of a few rows and a measured file."""
    folder = tmp_path_factory.mktemp("own")
    rows = [
        f"resnet50,A100-SXM4-80GB,8,{size},fp16-mixed,{MEASURED_S * size / 192}" for size in (160, 192, 224)
    ]
    header = "model,device,gpus,batch_size,precision,step_time_s"
    (folder / "own.csv").write_text(
        "\n".join([header, *rows, "no-such-model,T4,1,8,fp32,0.1"]), encoding="utf-8"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "load_corpus", tuple)
        patch.setattr(training, "measured_table", few_rows)
        patch.setattr(training, "cross_validate", made_up_folds)
        measured = ["--measurements", str(folder / "own.csv")]
        assert run("train", "--out", str(folder / "mine"), *measured, "--quick", "--workers", "1") == 0
    return folder / "mine"


def test_measured_steps_move_the_answers_near_them_and_are_shown(mine: Path) -> None:
    before, after = predict_time(**JOB), predict_time(**JOB, predictor=mine)
    assert before.step_time_s < 0.5 * MEASURED_S
    # The folds made up here err by much: the answer lies well below the middle of what is expected.
    assert after.step_time_s == pytest.approx(MEASURED_S, rel=0.35)
    assert after.interval.low_s < MEASURED_S < after.interval.high_s
    assert [run.source_ref for run in after.nearest_measurements] == [f"own.csv, line {n}" for n in (3, 4, 2)]
    assert after.nearest_measurements[0].measured_step_time_s == pytest.approx(MEASURED_S)
    [said] = [each.text for each in after.diagnostics if each.code == "predictor"]
    assert f"Predictor of {mine}" in said
    assert "3 of your own" in said
    assert "per step, by your predictor" in " ".join(str(after).split())
    assert "your predictor" not in str(before)


def test_every_way_to_name_a_predictor_asks_the_same(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = predict_time(**JOB, predictor=str(mine)).step_time_s
    job = tmp_path / "job.json"
    job.write_text(json.dumps({**JOB, "predictor": str(mine)}), encoding="utf-8")
    [filed] = read_requests(job)
    both = predict_many([JOB, {**JOB, "predictor": mine}, filed])
    shipped = predict_time(**JOB).step_time_s
    assert [answer.step_time_s for answer in both] == [shipped, expected, expected]
    main_words = [JOB["model"], "-d", JOB["device"], "-g", "8", "-p", JOB["precision"], "-b", "192", "--json"]
    assert run("predict", *main_words, "--predictor", str(mine)) == 0
    assert json.loads(capsys.readouterr().out)["predictions"][0]["step_time_s"] == expected
    monkeypatch.setenv(PREDICTOR_VARIABLE, str(mine))
    assert predict_time(**JOB).step_time_s == expected


def test_scores_are_of_the_predictor_that_is_named(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = []
    for words in ([], ["--predictor", str(mine)]):
        assert run("evaluate", str(mine.parent / "own.csv"), *words, "--json") == 0
        errors.append(json.loads(capsys.readouterr().out)["mape_percent"])
    assert errors[0] > 50.0
    assert errors[1] < 35.0


def test_the_same_rows_give_the_same_files(mine: Path, tmp_path: Path) -> None:
    load_predictor(mine).save(tmp_path / "again")
    card = json.loads((mine / "predictor.json").read_text(encoding="utf-8"))
    assert (tmp_path / "again" / card["arrays"]["file"]).read_bytes() == (
        mine / card["arrays"]["file"]
    ).read_bytes()


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("schema", 99, "its format is 99, here it is"),
        ("package", "0.0.1", "the version of precision-time that trained it is 0.0.1"),
        ("shipped_corpus", "0123", "the shipped corpus it learned from is 0123"),
        ("arrays", {"file": "../mine/predictor.safetensors", "sha256": "0"}, "is missing"),
        ("features", None, "damaged"),
    ],
)
def test_a_predictor_of_another_version_is_refused_by_name(
    mine: Path, tmp_path: Path, field: str, value: Any, says: str
) -> None:
    folder = tmp_path / "other"
    shutil.copytree(mine, folder)
    card = json.loads((folder / "predictor.json").read_text(encoding="utf-8"))
    (folder / "predictor.json").write_text(json.dumps({**card, field: value}), encoding="utf-8")
    with pytest.raises(
        NotFittedError, match=rf"{folder}.*{says}.*To fix: .*precision-time train --out {folder}"
    ):
        predict_time(**JOB, predictor=folder)


def test_a_crash_between_the_files_leaves_the_old_predictor(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from precision_time.learn import artifact

    folder = tmp_path / "mine"
    shutil.copytree(mine, folder)
    expected = predict_time(**JOB, predictor=folder).step_time_s
    written = artifact.write_atomically

    def dies(path: Path, content: bytes | str) -> None:
        if path.suffix == ".json":
            raise KeyboardInterrupt
        written(path, content)

    monkeypatch.setattr(artifact, "write_atomically", dies)
    with pytest.raises(KeyboardInterrupt):
        shipped_predictor().save(folder)
    assert len([*folder.glob("*.safetensors")]) == 2
    assert predict_time(**JOB, predictor=load_predictor(folder).origin).step_time_s == expected
    monkeypatch.undo()
    shipped_predictor().save(folder)
    assert len([*folder.glob("*.safetensors")]) == 1
    assert predict_time(**JOB, predictor=folder).step_time_s == predict_time(**JOB).step_time_s


def test_arrays_that_were_changed_are_refused(mine: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(mine, folder)
    [arrays] = folder.glob("*.safetensors")
    content = bytearray(arrays.read_bytes())
    content[len(content) // 2] ^= 1
    arrays.write_bytes(content)
    with pytest.raises(NotFittedError, match=f"{arrays.name} is not the file that its card names"):
        load_predictor(folder)


def test_training_never_writes_into_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    import precision_time

    inside = Path(precision_time.__file__).parent / "learn" / "data"
    assert run("train", "--out", str(inside), "--quick") == 2
    assert "lies in the package" in capsys.readouterr().err
