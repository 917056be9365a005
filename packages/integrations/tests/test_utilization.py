"""The utilization of measured steps: the peak, the FLOPs, recomputation apart, and what is usual."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from precision_time.cli.main import main
from precision_time.errors import ConfigError
from precision_time.request.request import Request
from precision_time_integrations.utilization import Usual, utilization_of

LLAMA = {"model": "llama3-8b", "device": "H100", "gpus": 8, "batch_size": 1, "precision": "bf16-mixed"}


def test_the_flops_of_a_decoder_are_those_of_the_palm_formula() -> None:
    """PaLM, appendix B: 6 N + 12 L H Q T for a token."""
    found = utilization_of(Request.of(LLAMA), 1.35, 1.25)
    products = 6.0 * (8.03e9 - 128256 * 4096)  # the embedding is looked up, the head multiplied
    scores = 12.0 * 32 * 32 * 128 * 8192
    assert found.model_flops == pytest.approx(8 * 8192 * (products + scores), rel=0.02)
    assert found.peak_flops_per_s == pytest.approx(989e12, rel=0.01)
    assert found.mfu == pytest.approx(found.model_flops / (1.35 * 8 * found.peak_flops_per_s))
    assert found.hfu == found.mfu


def test_recomputation_is_counted_apart() -> None:
    plain = utilization_of(Request.of(LLAMA), 1.8, 1.5)
    again = utilization_of(Request.of({**LLAMA, "recompute": "full"}), 1.8, 1.5)
    some = utilization_of(Request.of({**LLAMA, "recompute": "selective"}), 1.8, 1.5)
    assert again.mfu == plain.mfu
    assert again.hfu == pytest.approx(plain.mfu * 4.0 / 3.0)
    assert plain.hfu < some.hfu < again.hfu


def test_a_percentile_lies_among_the_runs() -> None:
    usual = Usual(of="runs", runs=11, sources=2, quantiles=tuple(each / 20 for each in range(11)))
    assert [usual.percentile(each) for each in (0.0, 0.25, 0.9)] == [0.0, pytest.approx(0.5), 1.0]
    found = utilization_of(Request.of(LLAMA), 1.35, 1.25)
    assert found.usual is not None
    assert list(found.usual.quantiles) == sorted(found.usual.quantiles)
    assert 0.0 <= (found.percentile or 0.0) <= 1.0


def test_more_than_the_peak_is_refused() -> None:
    with pytest.raises(ConfigError, match="of the peak"):
        utilization_of(Request.of(LLAMA), 0.1, 1.25)


def test_as_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["mfu", "--model", "llama3-8b", "-d", "H100", "-g", "8", "-b", "1", "--measured", "1.35s"]
    with pytest.raises(SystemExit, match="0"):
        main(words)
    named = capsys.readouterr().out
    assert "Usual:" in named
    with pytest.raises(SystemExit, match="0"):  # the model as predict takes it
        main([words[0], *words[2:]])
    assert capsys.readouterr().out == named
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert 0.3 < printed["mfu"] < 0.4
    log = tmp_path / "train.log"
    log.write_text("nothing to see\n", encoding="utf-8")
    for wrong in (["mfu"], [*words, str(log)], ["mfu", str(log)], ["mfu", "--measured", "2s"]):
        with pytest.raises(SystemExit):
            main(wrong)
        assert "To fix" in capsys.readouterr().err
