"""Short real trainings whose steps are timed, for data/eta_series.jsonl.gz.

    python eta_own_runs.py NAME

trains once, in this process, and prints the series as JSON. The data are random numbers; the work, its noise
and its pauses are real. `build_eta_series.py own` runs each in a fresh interpreter.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from precision_time.capture.timm_models import import_torchvision

Batch = tuple[Any, Any]
_STARTED_S = time.monotonic()


@dataclass
class Watch:
    """Notes when a step ends and when the run pauses."""

    events: list[tuple[int, float]] = field(default_factory=list)
    pauses: list[tuple[float, float, str]] = field(default_factory=list)

    def begin(self, step: int = 0) -> None:
        """The run starts, with this many steps done."""
        self.events.append((step, time.monotonic()))

    def step(self, step: int) -> None:
        """So many steps are done."""
        self.events.append((step, time.monotonic()))

    @contextlib.contextmanager
    def pause(self, name: str) -> Iterator[None]:
        """No steps meanwhile."""
        start_s = time.monotonic()
        yield
        self.pauses.append((start_s, time.monotonic(), name))


# Models and data


def cnn(width: int = 16, classes: int = 10) -> Any:
    """Convolutions with batch normalization, for any image size."""
    layers: list[Any] = []
    sizes = [3, width, 2 * width, 4 * width]
    for small, large in itertools.pairwise(sizes):
        layers += [nn.Conv2d(small, large, 3, 2, 1), nn.BatchNorm2d(large), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[-1], classes))


def mlp(width: int = 256, depth: int = 3) -> Any:
    """Fully connected layers, 64 inputs and 10 outputs."""
    hidden = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth - 1)]
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), *hidden, nn.Linear(width, 10))


def encoder(layers: int = 2, width: int = 64, vocabulary: int = 500) -> Any:
    """A transformer over tokens, with one class per sequence position."""
    block = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
    return nn.Sequential(
        nn.Embedding(vocabulary, width),
        nn.TransformerEncoder(block, layers, enable_nested_tensor=False),
        nn.Linear(width, vocabulary),
    )


def images(batch: int = 16, size: int = 32, classes: int = 10) -> Batch:
    """Random images and classes."""
    return torch.randn(batch, 3, size, size), torch.randint(classes, (batch,))


def rows(batch: int = 64) -> Batch:
    """Random rows of 64 numbers and classes."""
    return torch.randn(batch, 64), torch.randint(10, (batch,))


def tokens(batch: int = 8, length: int = 64, vocabulary: int = 500) -> Batch:
    """Random tokens and the tokens to predict."""
    return tuple(torch.randint(vocabulary, (batch, length)) for _ in range(2))


def update(model: Any, optimizer: Any, batch: Batch, *, apply: bool = True) -> None:
    """Forward, backward and, where `apply`, an optimizer step."""
    output = model(batch[0])
    loss = nn.functional.cross_entropy(output.flatten(0, -2), batch[1].flatten())
    loss.backward()
    if apply:
        optimizer.step()
        optimizer.zero_grad()


def evaluate(model: Any, batches: Iterable[Batch]) -> None:
    """Forward passes only."""
    model.eval()
    with torch.no_grad():
        for batch in batches:
            model(batch[0])
    model.train()


def loop(
    watch: Watch,
    model: Any,
    batches: Iterable[Batch],
    *,
    first_step: int = 0,
    evaluate_every: int = 0,
    evaluate_batches: int = 20,
    save_every: int = 0,
) -> Any:
    """Train on the batches with AdamW; returns the optimizer."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    watch.begin(first_step)
    for step, batch in enumerate(batches, first_step + 1):
        update(model, optimizer, batch)
        watch.step(step)
        if evaluate_every and step % evaluate_every == 0:
            with watch.pause("evaluation"):
                evaluate(model, [batch] * evaluate_batches)
        if save_every and step % save_every == 0:
            with watch.pause("checkpoint"), tempfile.TemporaryFile() as file:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
                os.fsync(file.fileno())
    return optimizer


def repeat(steps: int, batch: Callable[[], Batch]) -> Iterator[Batch]:
    """A new batch for every step."""
    return (batch() for _ in range(steps))


def spin() -> None:
    """Keep a processor busy."""
    while True:
        sum(range(10_000))


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Other processes that want the processors meanwhile."""
    spinning = [
        multiprocessing.get_context("spawn").Process(target=spin, daemon=True) for _ in range(processes)
    ]
    for process in spinning:
        process.start()
    yield
    for process in spinning:
        process.terminate()
        process.join()


# Trainings


def with_shards(watch: Watch, steps: int, per_shard: int) -> None:
    """Every so many steps the loader unpacks the next shard."""
    packed = gzip.compress(np.random.default_rng(0).integers(0, 64, 24_000_000, np.uint8).tobytes(), 4)

    def batches() -> Iterator[Batch]:
        for step in range(steps):
            if step % per_shard == 0:
                shard = np.frombuffer(gzip.decompress(packed), np.uint8)
            part = shard[(step % per_shard) * 49_152 :][:49_152].reshape(16, 3, 32, 32)
            yield torch.from_numpy(part / 64.0).float(), torch.randint(10, (16,))

    loop(watch, cnn(32), batches())


def with_workers(watch: Watch, steps: int) -> None:
    """A loader process that decodes every sample; it is often late."""

    def decode(index: int) -> Batch:
        raw = np.random.default_rng(index).integers(0, 255, (3, 96, 96), np.uint8)
        smooth = np.cumsum(np.cumsum(raw.astype(np.float32), 1), 2) / 1e4
        return torch.from_numpy(smooth[:, ::3, ::3].copy()), index % 10

    class Samples(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return steps * 32

        def __getitem__(self, index: int) -> Batch:
            return decode(index)

    loop(watch, cnn(24), torch.utils.data.DataLoader(Samples(), 32, num_workers=1))


def compiled(watch: Watch, model: Any, batches: Iterable[Batch]) -> None:
    """The first step, and the first of every new shape, compiles."""
    loop(watch, torch.compile(model), batches)


def growing_images(watch: Watch, sizes: tuple[int, ...], steps_each: int) -> None:
    """Progressive resizing."""
    loop(watch, cnn(24), (images(16, size) for size in sizes for _ in range(steps_each)))


def growing_batch(watch: Watch, batches: tuple[int, ...], steps_each: int) -> None:
    """A ramp of the batch size."""
    loop(watch, cnn(24), (images(batch) for batch in batches for _ in range(steps_each)))


def sorted_lengths(watch: Watch, steps: int) -> None:
    """Short sequences first."""
    loop(watch, encoder(), (tokens(8, 16 + 144 * step // steps) for step in range(steps)))


def any_lengths(watch: Watch, steps: int) -> None:
    """Every batch is as long as its longest sequence."""
    lengths = np.clip(np.random.default_rng(0).lognormal(3.8, 0.6, steps), 8, 256).astype(int)
    loop(watch, encoder(), (tokens(8, int(length)) for length in lengths))


def unfrozen(watch: Watch, steps: int) -> None:
    """The head first, then all of the model."""
    model = encoder(4)
    for parameter in model[1].parameters():
        parameter.requires_grad_(False)

    def batches() -> Iterator[Batch]:
        for step in range(steps):
            if step == steps // 3:
                for parameter in model.parameters():
                    parameter.requires_grad_(True)
            yield tokens()

    loop(watch, model, batches())


def resumed_part(watch: Watch, steps: int, first_step: int) -> None:
    """The second part of a run: loads the checkpoint, then goes on."""
    model = cnn(32)
    kept = io.BytesIO()
    torch.save(model.state_dict(), kept)
    kept.seek(0)
    model.load_state_dict(torch.load(kept, weights_only=True))
    loop(watch, model, repeat(steps - first_step, images), first_step=first_step)


def went_back(watch: Watch, steps: int, fails_at: int, saved_at: int) -> None:
    """Fails in the middle, loads the last checkpoint and repeats the steps since."""
    loop(watch, cnn(32), repeat(fails_at, images))
    second = Watch()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    loop(second, cnn(32), repeat(steps - saved_at, images), first_step=saved_at)
    watch.events += second.events


def with_others(watch: Watch, steps: int, quiet: int, processes: int) -> None:
    """Others take the processors after `quiet` steps, to the end."""
    with contextlib.ExitStack() as stack:

        def batches() -> Iterator[Batch]:
            for step in range(steps):
                if step == quiet:
                    stack.enter_context(busy(processes))
                yield images()

        loop(watch, cnn(32), batches())


def with_others_at_times(watch: Watch, steps: int, every: int) -> None:
    """Others take the processors half of the time."""

    def batches() -> Iterator[Batch]:
        for start in range(0, steps, 2 * every):
            with busy(1):
                yield from repeat(min(every, steps - start), images)
            yield from repeat(max(0, min(every, steps - start - every)), images)

    loop(watch, cnn(32), batches())


def accumulated(watch: Watch, steps: int, parts: int) -> None:
    """Several backward passes for an optimizer step."""
    model = encoder(3)
    optimizer = torch.optim.AdamW(model.parameters())
    watch.begin()
    for step in range(1, steps + 1):
        for part in range(parts):
            update(model, optimizer, tokens(), apply=part == parts - 1)
        watch.step(step)


def alternating(watch: Watch, steps: int) -> None:
    """A GAN: the generator is updated in every fifth step."""
    generator = nn.Sequential(
        nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 3072), nn.Unflatten(1, (3, 32, 32))
    )
    critic = cnn(24, 1)
    of_generator, of_critic = (torch.optim.Adam(m.parameters(), 1e-4) for m in (generator, critic))
    watch.begin()
    for step in range(1, steps + 1):
        made = generator(torch.randn(16, 64))
        (critic(made.detach()).mean() - critic(images()[0]).mean()).backward()
        of_critic.step()
        if step % 5 == 0:
            (-critic(generator(torch.randn(64, 64))).mean()).backward()
            of_generator.step()
        of_generator.zero_grad()
        of_critic.zero_grad()
        watch.step(step)


def diffusion(watch: Watch, steps: int, sample_every: int) -> None:
    """A denoiser that draws samples now and then."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1), nn.SiLU(), nn.Conv2d(32, 32, 3, 1, 1), nn.SiLU())
    model.append(nn.Conv2d(32, 3, 3, 1, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    watch.begin()
    for step in range(1, steps + 1):
        clean, noise = images(8)[0], torch.randn(8, 3, 32, 32)
        nn.functional.mse_loss(model(clean + noise), noise).backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.step(step)
        if step % sample_every == 0:
            with watch.pause("sampling"), torch.no_grad():
                drawn = torch.randn(8, 3, 32, 32)
                for _ in range(100):
                    drawn = drawn - 0.01 * model(drawn)


def reinforcement(watch: Watch, updates: int) -> None:
    """Episodes of any length between updates."""
    policy = mlp(128)
    optimizer = torch.optim.Adam(policy.parameters())
    random = np.random.default_rng(0)
    watch.begin()
    for number in range(1, updates + 1):
        seen = []
        for _ in range(int(random.geometric(1 / 120))):
            seen.append(torch.randn(64))
            with torch.no_grad():
                policy(seen[-1][None])
        update(policy, optimizer, (torch.stack(seen), torch.randint(10, (len(seen),))))
        watch.step(number)


def recurrent(watch: Watch, epochs: int, per_epoch: int) -> None:
    """An LSTM, evaluated and saved after every epoch."""
    lstm, head = nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 10)
    both = nn.ModuleList([lstm, head])
    optimizer = torch.optim.Adam(both.parameters())
    watch.begin()
    for step in range(1, epochs * per_epoch + 1):
        output = head(lstm(torch.randn(16, 50, 64))[0][:, -1])
        nn.functional.cross_entropy(output, torch.randint(10, (16,))).backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.step(step)
        if step % per_epoch == 0:
            with watch.pause("evaluation"), torch.no_grad():
                for _ in range(per_epoch // 4):
                    lstm(torch.randn(16, 50, 64))


def _rank(rank: int, port: int, steps: int, slow_from: int, results: Any) -> None:
    torch.set_num_threads(1)
    store = torch.distributed.TCPStore("127.0.0.1", port, 2, rank == 0)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    model = nn.parallel.DistributedDataParallel(cnn(32))
    watch = Watch()

    def batches() -> Iterator[Batch]:
        for step in range(steps):
            yield images(16 if rank == 0 or not slow_from or step < slow_from else 40)

    loop(watch, model, batches())
    if rank == 0:
        results.put(watch.events)
    torch.distributed.destroy_process_group()


def two_processes(watch: Watch, steps: int, slow_from: int = 0) -> None:
    """Data parallel over gloo; from `slow_from` on, the second process has more to do."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=_rank, args=(rank, port, steps, slow_from, results)) for rank in range(2)]
    for process in ranks:
        process.start()
    watch.events += results.get(timeout=900)
    for process in ranks:
        process.join()


def lightning_run(watch: Watch, epochs: int, per_epoch: int, network: Callable[[], Any], batch: Any) -> None:
    """Lightning's Trainer, validating after every epoch."""
    import_torchvision()
    import lightning

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, given: Batch, index: int) -> Any:
            return nn.functional.cross_entropy(self.network(given[0]), given[1])

        def validation_step(self, given: Batch, index: int) -> None:
            self.network(given[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    class Notes(lightning.Callback):  # type: ignore[misc]
        def on_train_start(self, trainer: Any, module: Any) -> None:
            watch.begin()

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            watch.step(trainer.global_step)

        def on_validation_start(self, trainer: Any, module: Any) -> None:
            self.start_s = time.monotonic()

        def on_validation_end(self, trainer: Any, module: Any) -> None:
            if not trainer.sanity_checking:
                watch.pauses.append((self.start_s, time.monotonic(), "evaluation"))

    def loader(batches: int) -> Any:
        return torch.utils.data.DataLoader([batch() for _ in range(batches)], batch_size=None)

    with tempfile.TemporaryDirectory() as folder:
        lightning.Trainer(
            max_epochs=epochs, accelerator="cpu", logger=False, callbacks=[Notes()], default_root_dir=folder,
            enable_progress_bar=False, enable_model_summary=False,
        ).fit(Module(), loader(per_epoch), loader(per_epoch // 3))  # fmt: skip


def hf_run(watch: Watch, steps: int, model: Any, samples: Any, evaluate_every: int, save_every: int) -> None:
    """The Hugging Face Trainer."""
    import_torchvision()
    import transformers

    class Notes(transformers.TrainerCallback):  # type: ignore[misc]
        start_s = 0.0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            watch.begin()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            watch.step(state.global_step)
            self.start_s = time.monotonic()

        def on_evaluate(self, *_: Any, **__: Any) -> None:
            watch.pauses.append((self.start_s, time.monotonic(), "evaluation"))
            self.start_s = time.monotonic()

        def on_save(self, *_: Any, **__: Any) -> None:
            watch.pauses.append((self.start_s, time.monotonic(), "checkpoint"))

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, max_steps=steps, per_device_train_batch_size=8, use_cpu=True,
            eval_strategy="steps" if evaluate_every else "no", eval_steps=evaluate_every or None,
            save_strategy="steps" if save_every else "no", save_steps=save_every or 500,
            logging_steps=50, report_to=[], disable_tqdm=True, save_total_limit=1,
        )  # fmt: skip
        transformers.Trainer(
            model, arguments, train_dataset=samples, eval_dataset=samples[:160], callbacks=[Notes()]
        ).train()


def hf_gpt2(watch: Watch, steps: int) -> None:
    """A small GPT-2."""
    import_torchvision()
    import transformers

    config = transformers.GPT2Config(vocab_size=500, n_positions=64, n_embd=128, n_layer=3, n_head=4)
    lines = [{"input_ids": row, "labels": row} for row in torch.randint(500, (2_000, 64))]
    hf_run(watch, steps, transformers.GPT2LMHeadModel(config), lines, 100, 0)


def hf_bert(watch: Watch, steps: int) -> None:
    """A small BERT, saved now and then."""
    import_torchvision()
    import transformers

    config = transformers.BertConfig(
        vocab_size=500, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512
    )
    lines = [{"input_ids": row, "labels": 1} for row in torch.randint(500, (2_000, 48))]
    hf_run(watch, steps, transformers.BertForSequenceClassification(config), lines, 0, 150)


def keras_run(watch: Watch, epochs: int, per_epoch: int, convolutions: bool) -> None:
    """Keras' fit, on the torch backend, with validation after every epoch."""
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    class Notes(keras.callbacks.Callback):  # type: ignore[misc]
        done = 0

        def on_train_begin(self, logs: Any = None) -> None:
            watch.begin()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.done += 1
            watch.step(self.done)

        def on_test_begin(self, logs: Any = None) -> None:
            self.start_s = time.monotonic()

        def on_test_end(self, logs: Any = None) -> None:
            watch.pauses.append((self.start_s, time.monotonic(), "evaluation"))

    layers = keras.layers
    middle = (
        [
            layers.Conv2D(16, 3, 2, activation="relu"),
            layers.Conv2D(32, 3, 2, activation="relu"),
            layers.Flatten(),
        ]
        if convolutions
        else [layers.Flatten(), layers.Dense(256, activation="relu"), layers.Dense(256, activation="relu")]
    )
    model = keras.Sequential([layers.Input((32, 32, 3)), *middle, layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    given = np.random.default_rng(0).normal(size=(16 * per_epoch, 32, 32, 3)).astype("float32")
    classes = np.arange(len(given)) % 10
    model.fit(
        given, classes, batch_size=16, epochs=epochs, verbose=0, callbacks=[Notes()],
        validation_data=(given[: len(given) // 4], classes[: len(given) // 4]),
    )  # fmt: skip


def catalog(watch: Watch, name: str, steps: int, batch: int, size: int) -> None:
    """A torchvision model."""
    loop(
        watch, import_torchvision().models.get_model(name), repeat(steps, lambda: images(batch, size, 1_000))
    )


RUNS: dict[str, Callable[[Watch], None]] = {
    "own-cnn": lambda w: loop(w, cnn(32), repeat(2_000, images)),
    "own-mlp": lambda w: loop(w, mlp(), repeat(12_000, rows)),
    "own-shards": lambda w: with_shards(w, 1_600, 400),
    "own-workers": lambda w: with_workers(w, 600),
    "own-compiled-cnn": lambda w: compiled(w, cnn(32), repeat(2_000, images)),
    "own-compiled-shapes": lambda w: compiled(
        w, encoder(), (tokens(8, (32, 48, 64, 96)[step // 150 % 4]) for step in range(900))
    ),
    "own-transformer-evaluated": lambda w: loop(
        w, encoder(), repeat(1_000, tokens), evaluate_every=250, evaluate_batches=100
    ),
    "own-mlp-saved": lambda w: loop(
        w, mlp(600, 5), repeat(900, rows), save_every=150, evaluate_every=300, evaluate_batches=40
    ),
    "own-resumed": lambda w: resumed_part(w, 4_500, 3_000),
    "own-went-back": lambda w: went_back(w, 2_000, 1_100, 800),
    "own-growing-images": lambda w: growing_images(w, (24, 32, 48, 64), 300),
    "own-growing-batch": lambda w: growing_batch(w, (4, 8, 16, 32), 400),
    "own-sorted-lengths": lambda w: sorted_lengths(w, 800),
    "own-any-lengths": lambda w: any_lengths(w, 800),
    "own-unfrozen": lambda w: unfrozen(w, 600),
    "own-straggler": lambda w: with_others(w, 1_500, 600, 1),
    "own-others-at-times": lambda w: with_others_at_times(w, 1_600, 200),
    "own-accumulated": lambda w: accumulated(w, 80, 8),
    "own-gan": lambda w: alternating(w, 1_000),
    "own-diffusion": lambda w: diffusion(w, 800, 200),
    "own-reinforcement": lambda w: reinforcement(w, 800),
    "own-lstm": lambda w: recurrent(w, 6, 150),
    "own-ddp": lambda w: two_processes(w, 500),
    "own-ddp-slow-rank": lambda w: two_processes(w, 400, 200),
    "own-lightning-cnn": lambda w: lightning_run(w, 4, 400, lambda: cnn(32), images),
    "own-lightning-mlp": lambda w: lightning_run(w, 5, 500, mlp, rows),
    "own-hf-gpt2": lambda w: hf_gpt2(w, 350),
    "own-hf-bert": lambda w: hf_bert(w, 450),
    "own-keras-cnn": lambda w: keras_run(w, 8, 300, True),
    "own-keras-mlp": lambda w: keras_run(w, 10, 250, False),
    "own-resnet18": lambda w: catalog(w, "resnet18", 150, 8, 64),
    "own-mobilenet-v2": lambda w: catalog(w, "mobilenet_v2", 150, 8, 64),
    "own-squeezenet": lambda w: catalog(w, "squeezenet1_1", 300, 8, 64),
}


def main() -> None:
    """Train once and print the series."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    watch = Watch()
    with contextlib.redirect_stdout(sys.stderr):
        RUNS[sys.argv[1]](watch)
    share = time.process_time() / (time.monotonic() - _STARTED_S)
    print(json.dumps({"events": watch.events, "pauses": watch.pauses, "cpu_share": round(share, 3)}))


if __name__ == "__main__":
    main()
