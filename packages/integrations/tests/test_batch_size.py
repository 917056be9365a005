"""The largest batch that runs: found from the predicted one, in fewer tries than by doubling.

The end of memory is the error of PyTorch's allocator, raised above a batch that others measured: no GPU is
needed here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from precision_time.errors import ConfigError
from precision_time.predict.api import predict_time
from precision_time_integrations.batch_size import (
    find_batch_size,
    is_out_of_memory,
    predicted_batch_size,
)

BERT_LIMITS = {
    "bert-base-uncased": {64: 64, 128: 32, 256: 16, 320: 14, 384: 12, 512: 6},
    "bert-large-uncased": {64: 12, 128: 6, 256: 2, 320: 1},
}
"""Largest batches by tokens on a Titan X of 12 GB (google-research/bert, README, out-of-memory issues)."""
VGG16_GIB = {4.0: 3.00, 64.0: 7.06}
"""Peak by batch on a V100 (the corpus's cdecatapult rows): a line, by which 16 GiB hold a batch of 196."""


@pytest.fixture(autouse=True)
def _nothing_to_give_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """These steps leave nothing behind, and looking for it takes most of the time."""
    monkeypatch.setattr("precision_time_integrations.batch_size.clear_memory", lambda: None)


def bert(model: str, tokens: int) -> dict[str, Any]:
    return {
        "model": model, "task": "squad-finetune", "seq_len": tokens, "device": "TitanX-Pascal",
        "precision": "fp32", "stack": "tf-graph", "optimizer": "adam",
    }  # fmt: skip


def runs_up_to(limit: int) -> Callable[[int], None]:
    """A step that ends as PyTorch's does where the batch is larger."""

    def step(batch: int) -> None:
        if batch > limit:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

    return step


def test_doubling_from_the_prediction_ends_at_the_same_batch_in_fewer_tries() -> None:
    ours = doubling = 0
    for model, limits in BERT_LIMITS.items():
        for tokens, limit in limits.items():
            found = find_batch_size(runs_up_to(limit), bert(model, tokens))
            plain = find_batch_size(runs_up_to(limit), start=2)
            assert found.batch_size == plain.batch_size
            assert 2 * found.batch_size > limit >= found.batch_size
            assert found.is_largest
            ours, doubling = ours + len(found.tries), doubling + len(plain.tries)
    assert (ours, doubling) == (24, 40)


def test_a_good_prediction_takes_few_tries() -> None:
    (low, low_gib), (high, high_gib) = VGG16_GIB.items()
    per_sample = (high_gib - low_gib) / (high - low)
    limit = int(low + (16.0 - low_gib) / per_sample)
    request = {"model": "vgg16", "device": "V100-SXM2-16GB", "precision": "fp32"}
    assert predicted_batch_size(request) == pytest.approx(limit, rel=0.1)
    found = find_batch_size(runs_up_to(limit), request, mode="largest")
    assert limit * 0.98 <= found.batch_size <= limit
    plain = find_batch_size(runs_up_to(limit), start=2, mode="largest")
    assert len(found.tries) <= 5 < len(plain.tries)


def test_the_predicted_batch_is_the_last_that_fits() -> None:
    request = {"model": "resnet50", "device": "T4", "precision": "fp16-mixed"}
    batch = predicted_batch_size(request)
    assert predict_time(**request, batch_size=batch).fits
    assert not predict_time(**request, batch_size=batch + 1, recompute="none").fits
    # What does not fit as it is: a layout that would be chosen to make it fit is not the script's.
    assert predicted_batch_size({"model": "llama3-8b", "device": "A100-SXM4-80GB"}) == 0
    assert predicted_batch_size(request, most=7) == 7


@pytest.mark.parametrize("mode", ["power", "largest"])
@pytest.mark.parametrize("limit", [1, 2, 3, 37, 300, 8192])
@pytest.mark.parametrize("start", [1, 40, 5000])
def test_every_start_ends_at_the_largest(mode: Any, limit: int, start: int) -> None:
    found = find_batch_size(runs_up_to(limit), start=start, mode=mode, most=4096)
    largest = min(limit, 4096)
    assert found.batch_size <= largest
    assert found.batch_size > largest / 2 if mode == "power" else found.batch_size >= 0.97 * largest
    assert found.is_largest == (limit < 4096)
    assert (found.batch_size, True) in found.tries
    assert len({batch for batch, _ in found.tries}) == len(found.tries)


def test_what_is_not_the_end_of_memory_is_raised() -> None:
    def broken(batch: int) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        find_batch_size(broken, start=4)
    with pytest.raises(ConfigError, match="does not fit"):
        find_batch_size(runs_up_to(0), start=4)
    with pytest.raises(ConfigError, match="Neither request nor start"):
        find_batch_size(runs_up_to(4))


def test_the_errors_of_libraries_are_known() -> None:
    import torch

    ended = [
        torch.cuda.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED."),
        RuntimeError("MPS backend out of memory (MPS allocated: 18 GB)"),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes"),
        MemoryError(),
    ]
    assert all(map(is_out_of_memory, ended))
    assert not any(map(is_out_of_memory, [ValueError("out of memory"), RuntimeError("CUDA error: 700")]))


def test_accelerate_begins_at_the_prediction() -> None:
    from precision_time_integrations.batch_size import accelerate_batch_size

    tried = []
    request = {"model": "vgg16", "device": "V100-SXM2-16GB", "precision": "fp32"}

    @accelerate_batch_size(request=request)
    def train(batch_size: int) -> int:
        tried.append(batch_size)
        runs_up_to(196)(batch_size)
        return batch_size

    assert 0.8 * 196 < train() <= 196
    assert len(tried) <= 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Lightning's hints about this machine
@pytest.mark.parametrize("mode", ["power", "binsearch"])
def test_lightning_begins_at_the_prediction(mode: str, tmp_path: Any) -> None:
    import torch

    from precision_time_integrations.lightning_batch_size import PredictedBatchSizeFinder

    from lightning.pytorch import LightningModule, Trainer  # isort: skip - torchvision is mended first
    from lightning.pytorch.callbacks import BatchSizeFinder  # isort: skip

    class Module(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)
            self.batch_size, self.tried = 2, [0]

        def training_step(self, batch: Any) -> Any:
            if self.tried[-1] != len(batch[0]):
                self.tried.append(len(batch[0]))
            runs_up_to(32)(len(batch[0]))
            return self.linear(batch[0]).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

        def train_dataloader(self) -> Any:
            data = torch.utils.data.TensorDataset(torch.zeros(4096, 4))
            return torch.utils.data.DataLoader(data, batch_size=self.batch_size)

    tries = {}
    for finder in (
        BatchSizeFinder(mode=mode, margin=0.0),
        PredictedBatchSizeFinder(bert("bert-base-uncased", 128), mode=mode, margin=0.0),
    ):
        module = Module()
        trainer = Trainer(
            max_steps=1, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[finder],
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip
        trainer.fit(module)
        assert module.batch_size == 32
        tries[type(finder).__name__] = len(module.tried) - 2  # the 0, and the training itself
    assert tries["PredictedBatchSizeFinder"] < tries["BatchSizeFinder"]


@pytest.mark.nightly(
    covered_by="packages/integrations/tests/test_batch_size.py::test_accelerate_begins_at_the_prediction"
)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of transformers, about this machine
def test_the_trainer_of_hugging_face_begins_at_the_prediction(tmp_path: Any) -> None:
    import torch

    from precision_time.capture.timm_models import import_torchvision

    with suppress(ImportError, RuntimeError):
        import_torchvision()
    from transformers import Trainer, TrainingArguments

    tried = []

    class Module(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def forward(self, x: Any) -> Any:
            tried.append(len(x))
            runs_up_to(196)(len(x))
            return {"loss": self.linear(x).mean()}

    def steps_from(batch: int) -> int:
        tried.clear()
        arguments = TrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=batch, auto_find_batch_size=True,
            max_steps=1, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True,
            logging_strategy="no",
        )  # fmt: skip
        data = [{"x": torch.zeros(4)} for _ in range(1024)]
        Trainer(model=Module(), args=arguments, train_dataset=data).train()
        assert 0.85 * 196 < tried[-1] <= 196
        return len(tried)

    predicted = predicted_batch_size({"model": "vgg16", "device": "V100-SXM2-16GB", "precision": "fp32"})
    assert steps_from(predicted) == 2 < steps_from(400)
