"""Keras with the torch backend: real fits, what they are read as, and that they train as they would alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.slow

FITS = """
import json, sys
import keras, numpy as np
from pathlib import Path
from precision_time_integrations.online.keras import EtaCallback, describe_model

data = np.random.default_rng(0)
x, y = data.random((96, 12)).astype("float32"), data.integers(0, 3, 96)


class Clocked(EtaCallback):  # every step takes 10 ms, every evaluation 10 s, every wait for input 2 ms
    now = 0.0

    def __init__(self, **options):
        super().__init__(clock=lambda: self.now, say=said.append, **options)

    def on_train_batch_begin(self, batch, logs=None):
        self.now += 0.002
        super().on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        self.now += 0.01
        super().on_train_batch_end(batch, logs)

    def on_test_end(self, logs=None):
        self.now += 10.0
        super().on_test_end(logs)


def net(accum=None, policy=None):
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Input((12,)), keras.layers.Dense(32, activation="relu", dtype=policy),
              keras.layers.BatchNormalization(), keras.layers.Dense(3)]
    model = keras.Sequential(layers, name="tiny")
    model.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=accum),
                  loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def stream(batches):
    for _ in range(batches):
        yield x[:8], y[:8]


said, found = [], {}
alone = net().fit(x, y, batch_size=8, epochs=2, verbose=0, shuffle=False).history["loss"]
callback, model = Clocked(share_with_corpus=True, store=Path("runs.csv"), device="A100-SXM4-80GB"), net()
history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, shuffle=False, callbacks=[callback],
                    validation_data=(x[:8], y[:8])).history
request = callback.record.request
found["same_losses"] = history["loss"] == alone
found["first"] = [callback.failure, callback.record.steps, round(callback.record.step_time_s, 5),
                  {name: round(value, 3) for name, value in callback.record.pauses_s.items()},
                  round(callback.record.waited_s, 4)]
found["request"] = [request[name] for name in ("batch_size", "precision", "optimizer", "num_microbatches")]
found["params"] = [request["model"].params, sum(int(np.prod(w.shape)) for w in model.trainable_weights)]
found["products"] = [node.weight_grad for node in request["model"].nodes if node.op == "mm"]
found["history"] = history["eta/remaining_s"]
found["offered"] = "tiny-" in Path("runs.csv").read_text()
said.clear()
model.fit(x, y, batch_size=8, epochs=5, initial_epoch=3, verbose=0, callbacks=[callback])  # the same again
found["resumed"] = [callback.failure, callback.record.steps, "24 steps: " in said[0]]
unknown = Clocked(predict=False)
history = net(accum=2).fit(stream(8), epochs=1, verbose=0, callbacks=[unknown]).history
found["no_length"] = [unknown.failure, unknown.record.steps, history["eta/remaining_s"]]


class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 7:
            raise KeyboardInterrupt


stopped = Clocked(predict=False)
try:
    net().fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=[stopped, Stop()])
except KeyboardInterrupt:
    stopped.end()
found["interrupted"] = [stopped.failure, stopped.record.steps]
none = EtaCallback(predict=False)
net().fit(x, y, batch_size=8, epochs=0, verbose=0, callbacks=[none])
found["no_epochs"] = [none.failure, none.record]
keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
batch = keras.ops.convert_to_tensor(x[:8]), keras.ops.convert_to_tensor(y[:8])
mixed = describe_model(net(), batch, {"device": "A100"}).request
frozen = net()
frozen.layers[0].trainable = False
half = describe_model(frozen, batch, {"device": "A100"}).request
found["read"] = [mixed.precision, mixed.resolve().workload.graph.trainable_params,
                 half.model.params, half.model.trainable_params]
Mesh = type("Mesh", (), {"axis_names": ("batch", "model"), "shape": (4, 2)})
for kind in ("DataParallel", "ModelParallel"):
    made = type(kind, (), {"device_mesh": Mesh(), "batch_dim_name": "batch"})()
    keras.distribution.distribution = lambda made=made: made
    spread = describe_model(net(), batch, {"device": "A100"})
    found[kind] = [spread.request.gpus, spread.request.tp, len(spread.reasons)]
print("found", json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process found: Keras holds its backend and policy for all of it."""
    ran = subprocess.run(
        [sys.executable, "-c", FITS], cwd=tmp_path_factory.mktemp("fits"), check=False, timeout=240,
        capture_output=True, text=True, env={**os.environ, "KERAS_BACKEND": "torch"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    line = next(line for line in ran.stdout.splitlines() if line.startswith("found "))
    answer: dict[str, Any] = json.loads(line.removeprefix("found "))
    return answer


def test_a_fit_is_watched_and_trains_as_it_would_alone(found: dict[str, Any]) -> None:
    assert found["same_losses"]
    failure, steps, step_time_s, pauses_s, waited_s = found["first"]
    assert not failure and steps == 24 and step_time_s == pytest.approx(0.012, rel=0.01)
    assert pauses_s["evaluation"] == pytest.approx(20.0, abs=0.01)
    assert waited_s == pytest.approx(0.0019, rel=0.1)
    assert found["history"][-1] == 0.0 and 10.1 < found["history"][0] < 10.5


def test_the_model_is_read_whole(found: dict[str, Any]) -> None:
    assert found["request"] == [8, "fp32", "momentum-sgd", 1]
    assert found["params"][0] == found["params"][1] == 12 * 32 + 32 + 2 * 32 + 32 * 3 + 3
    assert found["products"] == [True, True] and found["offered"]
    assert found["DataParallel"] == [8, 1, 0] and found["ModelParallel"] == [8, 2, 1]
    assert found["read"] == ["bf16-mixed", 579, 579, 579 - 12 * 32 - 32]


def test_fits_that_go_on_end_early_or_have_no_length(found: dict[str, Any]) -> None:
    assert found["resumed"] == ["", 24, True]
    assert found["no_length"] == ["", 4, [0.0]]
    assert found["interrupted"] == ["", 8]
    assert found["no_epochs"] == ["", None]
