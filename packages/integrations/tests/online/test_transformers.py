"""The remaining time of the Hugging Face Trainer, with the real library."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .conftest import Clock

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of transformers and torch: pinned memory ...
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # its own deprecated names
]
STEP_S, EVALUATION_S, CHECKPOINT_S = 100.0, 1000.0, 300.0
SAMPLES = 48


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    """Transformers, a clock, and what makes a model, samples and a trainer."""
    from precision_time_integrations.online.imports import declare_torchvision

    declare_torchvision()
    import transformers

    return Lab(transformers, tmp_path)


class Lab:
    """One test's trainer and clock."""

    def __init__(self, transformers: Any, folder: Path) -> None:
        import torch

        from precision_time_integrations.online.transformers import EtaCallback

        self.transformers, self.torch, self.folder, self.clock = transformers, torch, folder, Clock()
        self.said: list[str] = []
        self.callback = EtaCallback(clock=self.clock, say=self.said.append, device="A100-SXM4-80GB")
        self.etas: list[Any] = []
        self.at: dict[int, Any] = {}

    def model(self, **changes: Any) -> Any:
        sizes = {
            "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 1, "vocab_size": 100, **changes,
        }  # fmt: skip
        return self.transformers.LlamaForCausalLM(self.transformers.LlamaConfig(**sizes))

    def samples(self) -> list[Any]:
        return [{"input_ids": row, "labels": row} for row in self.torch.zeros(SAMPLES, 8).long()]

    def trainer(self, *, model: Any = None, data: Any = None, callbacks: Any = None, **options: Any) -> Any:
        lab = self

        class Turns(self.transformers.TrainerCallback):  # type: ignore[name-defined,misc]
            def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                lab.at.get(state.global_step + 1, lambda: None)()

            def on_optimizer_step(self, *_: Any, **__: Any) -> None:
                lab.etas.append(lab.callback.eta)
                lab.clock.now_s += STEP_S

            def on_prediction_step(self, *_: Any, **__: Any) -> None:
                lab.clock.now_s += EVALUATION_S

        class Saves(self.transformers.Trainer):  # type: ignore[name-defined,misc]
            def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
                lab.clock.now_s += CHECKPOINT_S
                super()._save_checkpoint(*args, **kwargs)

        usual = {
            "output_dir": str(self.folder), "num_train_epochs": 2, "per_device_train_batch_size": 4,
            "save_strategy": "no", "report_to": "none", "use_cpu": True, "disable_tqdm": True,
            "logging_steps": 4,
        }  # fmt: skip
        return Saves(
            model=model or self.model(),
            args=self.transformers.TrainingArguments(**{**usual, **options}),
            train_dataset=self.samples() if data is None else data,
            eval_dataset=self.samples()[:8],
            callbacks=[self.callback] if callbacks is None else callbacks,
        ), Turns()

    def train(self, *, resume: Any = None, **options: Any) -> Any:
        trainer, turns = self.trainer(**options)
        trainer.add_callback(turns)
        trainer.train(resume_from_checkpoint=resume)
        return trainer


def test_run_is_predicted_told_logged_and_measured(lab: Any) -> None:
    trainer = lab.train(
        gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=4, per_device_eval_batch_size=4,
        save_strategy="steps", save_steps=6, gradient_checkpointing=True,
    )  # fmt: skip
    assert not lab.callback.failure and not lab.callback.run.failure
    request = lab.callback.run.described.request
    assert request.model["model_type"] == "llama" and request.seq_len == 8
    assert (request.optimizer, request.batch_size, request.stack) == ("adamw", 4, "hf-trainer")
    assert (request.num_microbatches, request.recompute) == (2, "full")
    assert (request.gpus, request.precision, request.steps) == (1, "fp32", 12)
    assert len(lab.said) == 1 and "12 steps" in lab.said[0] and "Not read" not in lab.said[0]
    assert lab.etas[0].basis == "prediction" and lab.etas[0].total_steps == 12
    record = lab.callback.record
    assert (record.steps, record.step_time_s) == (12, pytest.approx(STEP_S))
    assert record.pauses_s == {
        "evaluation": pytest.approx(3 * 2 * EVALUATION_S), "checkpoint": pytest.approx(2 * CHECKPOINT_S)
    }  # fmt: skip
    assert lab.etas[10].pause_s == pytest.approx(2 * EVALUATION_S + CHECKPOINT_S)
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logged) == 3 and all(entry["eta/remaining_s"] >= 0.0 for entry in logged)
    assert not any("eta/remaining_s" in entry for entry in trainer.state.log_history if "eval_loss" in entry)
    saved = json.loads((lab.folder / "checkpoint-12" / "trainer_state.json").read_text())
    assert "eta/low_s" in saved["log_history"][0]


def test_what_the_user_states_comes_first(lab: Any) -> None:
    said = {"model": "resnet50", "gpus": 16, "nodes": 2, "optimizer": "momentum-sgd", "batch_size": 32}
    lab.callback = type(lab.callback)(clock=lab.clock, say=lab.said.append, device="A100-SXM4-80GB", **said)
    lab.train()
    request = lab.callback.run.described.request
    assert {name: request.given()[name] for name in said} == said
    assert "a step of resnet50" in lab.said[0] and "16 x A100-SXM4-80GB" in lab.said[0]


def test_stream_without_length_runs_to_its_number_of_steps(lab: Any) -> None:
    torch, samples = lab.torch, lab.samples()

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[name-defined,misc]
        def __iter__(self) -> Iterator[Any]:
            while True:
                yield from samples

    lab.train(data=Stream(), max_steps=10)
    assert {eta.total_steps for eta in lab.etas} == {10}
    assert lab.callback.record.steps == 10 and lab.callback.run.described.request.seq_len == 8


def test_second_run_resumes_from_a_checkpoint(lab: Any) -> None:
    lab.train(save_strategy="steps", save_steps=6)
    lab.etas.clear()
    lab.train(resume=str(lab.folder / "checkpoint-6"))
    assert (lab.etas[0].step, lab.etas[0].total_steps) == (6, 24)
    assert lab.callback.record.steps == 18 and len(lab.said) == 2


def test_interrupted_run_leaves_the_callback_ready(lab: Any) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    lab.at = {8: interrupt}
    with pytest.raises(KeyboardInterrupt):
        lab.train()
    first, lab.at = lab.callback.run, {}
    lab.train()
    assert first.record.steps == 7 and first.record.step_time_s == pytest.approx(STEP_S)
    assert lab.callback.record.steps == 24


def test_types_and_heads_are_those_of_the_live_model(lab: Any) -> None:
    lab.train(model=lab.model().to(lab.torch.bfloat16), bf16=True, max_steps=2)
    assert lab.callback.run.described.request.precision == "bf16"
    lab.train(bf16=True, max_steps=2)
    assert lab.callback.run.described.request.precision == "bf16-mixed"
    config = lab.transformers.BertConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=100,
        num_labels=7,
    )  # fmt: skip
    model = lab.transformers.BertForSequenceClassification(config)
    data = [{**sample, "labels": 1, "attention_mask": [1] * 8} for sample in lab.samples()]
    lab.train(model=model, data=data, max_steps=2)
    graph = lab.callback.run.described.request.model
    assert graph.params == sum(parameter.numel() for parameter in model.parameters())
    assert lab.callback.prediction is not None and lab.callback.run.described.reasons == ()


def test_model_whose_part_is_frozen_is_not_its_configuration(lab: Any) -> None:
    model = lab.model()
    model.model.requires_grad_(False)
    lab.train(model=model, max_steps=2)
    graph = lab.callback.run.described.request.model
    assert graph.trainable_params == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert graph.params > graph.trainable_params


def test_reporters_have_the_remaining_time_where_it_is_added_before_them(lab: Any) -> None:
    seen: list[Any] = []

    class Reporter(lab.transformers.TrainerCallback):  # type: ignore[name-defined,misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            seen.append(dict(logs))

    trainer, turns = lab.trainer(callbacks=[Reporter()], eval_strategy="steps", eval_steps=12)
    trainer.add_callback(turns)
    lab.callback.add_to(trainer)
    trainer.train()
    assert all("eta/remaining_s" in logs for logs in seen if "loss" in logs)
    assert "evaluation" in lab.callback.record.pauses_s


def test_bar_shows_the_remaining_time(lab: Any) -> None:
    shown: list[str] = []

    class Looks(lab.transformers.TrainerCallback):  # type: ignore[name-defined,misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            shown.append(str(getattr(lab.callback._bar, "postfix", "")))

    trainer, turns = lab.trainer(callbacks=[lab.callback, Looks()], disable_tqdm=False)
    trainer.add_callback(turns)
    trainer.train()
    assert "left (" in shown[5]


@pytest.mark.parametrize("method", ["begin", "step", "eta"])
def test_monitor_that_raises_does_not_end_the_run(
    lab: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from precision_time_integrations.online.monitor import RunMonitor

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("broken on purpose")

    monkeypatch.setattr(RunMonitor, method, broken)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer = lab.train()
    assert trainer.state.global_step == 24
    assert sum("broken on purpose" in str(each.message) for each in said) == 1


def test_adapters_of_peft_are_fields_of_the_request(lab: Any) -> None:
    from precision_time import predict_time
    from precision_time_integrations.online.describe import request_of

    nn, base = lab.torch.nn, lab.model()
    base.requires_grad_(False)
    for layer in base.model.layers:
        for name in ("q_proj", "v_proj"):
            getattr(layer.self_attn, name).lora_A = nn.Linear(16, 4, bias=False)

    class Peft(nn.Module):  # type: ignore[name-defined,misc]
        """What `get_peft_model` returns, as far as it is read."""

        peft_config = {"default": SimpleNamespace(r=4, target_modules={"q_proj", "v_proj"}, use_dora=False)}

        def __init__(self) -> None:
            super().__init__()
            self.base_model = base

        def get_base_model(self) -> Any:
            return self.base_model

    batch = {"input_ids": lab.torch.zeros(2, 8).long(), "labels": lab.torch.zeros(2, 8).long()}
    found = request_of(Peft(), batch=batch, device="A100-SXM4-80GB")
    assert found.request is not None and found.reasons == ()
    assert (found.request.adapter, found.request.lora_rank) == ("lora", 4)
    assert found.request.lora_targets == "q_proj,v_proj"
    assert predict_time(found.request).step_time_s > 0.0


def test_model_inside_of_a_module_is_taken_by_its_configuration(lab: Any) -> None:
    from precision_time_integrations.online.describe import request_of

    class Task(lab.torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

    def step(module: Any, batch: Any) -> Any:
        return module.inner(**batch).loss

    batch = {"input_ids": lab.torch.zeros(2, 8).long(), "labels": lab.torch.zeros(2, 8).long()}
    found = request_of(Task(lab.model()), batch=batch, forward=step, device="A100-SXM4-80GB").request
    assert found is not None and found.model["model_type"] == "llama" and found.seq_len == 8
