"""`precision-time kubernetes`, as somebody at a shell uses it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from precision_time.cli.main import main
from precision_time_integrations.kubernetes import read_documents

EXAMPLES = Path(__file__).parents[2] / "examples" / "kubernetes"


def run(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    try:
        main([str(word) for word in ("kubernetes", *words)])
        code = 0
    except SystemExit as done:
        code = int(done.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


def test_annotate_writes_yaml_that_kubectl_takes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "annotate", EXAMPLES / "job.yaml", EXAMPLES / "pytorchjob.yaml")
    assert code == 0
    job, pytorch = read_documents(out)
    assert job["spec"]["activeDeadlineSeconds"] > 0
    assert pytorch["spec"]["runPolicy"]["activeDeadlineSeconds"] > 0
    assert "a node of its own" in err


def test_annotate_reads_stdin_and_options_count_most(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = json.dumps(read_documents((EXAMPLES / "job.yaml").read_text(encoding="utf-8"))[0])
    limits = []
    for epochs in ("10", "20"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(manifest.encode())))
        code, out, _ = run(capsys, "annotate", "-", "--epochs", epochs, "--quantile", "0.5", "--json")
        assert code == 0
        found = json.loads(out)
        limits.append(found["manifests"][0]["spec"]["activeDeadlineSeconds"])
        assert found["jobs"][0]["fields"]["epochs"] == epochs
    assert 1.5 < limits[1] / limits[0] < 2.1


def test_what_cannot_be_predicted_passes_through(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    text = "---\napiVersion: batch/v1\nkind: Job\nmetadata:\n  generateName: x-\nspec: {}\n"
    file.write_text(text, encoding="utf-8")
    code, out, err = run(capsys, "annotate", file)
    assert (code, read_documents(out)) == (0, read_documents(text))
    assert "x-...: not predicted: " in err
    file.write_text("kind: Service\napiVersion: v1\n", encoding="utf-8")
    code, out, err = run(capsys, "annotate", file)
    assert (code, out) == (0, "---\nkind: Service\napiVersion: v1\n")
    assert "No job" in err


@pytest.mark.parametrize(
    "words",
    [("annotate", "no-such-file.yaml"), ("annotate", EXAMPLES),
     ("annotate", EXAMPLES / "job.yaml", "--quantile", "1"),
     ("annotate", EXAMPLES / "job.yaml", "--margin", "-1"), ("certificate", "--out", "x", "--days", "0"),
     ("certificate", "--out", "x", "--host", "no\u00efn\u00e4me\u20ac")],
)  # fmt: skip
def test_errors_say_how_to_fix_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert "To fix" in err


def test_manifests_are_read_without_libraries_of_kubernetes() -> None:
    code = (
        "import sys; import precision_time_integrations.kubernetes; "
        "print(*{'torch', 'cryptography', 'kubernetes', 'fastapi'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("name", ["job.yaml", "pytorchjob.yaml"])
def test_examples_are_estimated(capsys: pytest.CaptureFixture[str], name: str) -> None:
    with pytest.raises(SystemExit) as done:
        main(["estimate", str(EXAMPLES / name), "--json"])
        raise SystemExit(0)
    assert done.value.code == 0
    [job] = json.loads(capsys.readouterr().out)["jobs"]
    assert 60 < job["duration_s"]["p10"] < job["expected_s"] < job["duration_s"]["p95"]
    assert job["cost_usd"] > 1
