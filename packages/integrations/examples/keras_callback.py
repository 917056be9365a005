"""Keras: the remaining time of `fit` in the progress bar and the history."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")
import keras
import numpy as np

from precision_time_integrations.online.keras import EtaCallback

images, labels = np.random.rand(1280, 28, 28, 1), np.random.randint(0, 10, 1280)
model = keras.Sequential(
    [
        keras.layers.Input((28, 28, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ]
)
model.compile(
    optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
)

eta = EtaCallback(share_with_corpus=True)  # before CSVLogger, TensorBoard ...: they get its values, too
history = model.fit(
    images, labels, batch_size=64, epochs=3, validation_split=0.2, verbose=2, callbacks=[eta]
).history

print(
    f"predicted {eta.prediction.step_time_s * 1e3:.1f} ms per step, took {eta.record.step_time_s * 1e3:.1f}"
)
print(f"left after each epoch: {', '.join(f'{left:.1f} s' for left in history['eta/remaining_s'])}")
print(f"{eta.record.steps} steps; pauses: {', '.join(sorted(eta.record.pauses_s))}")

# needs: torch keras
# prints: predicted [\d.]+ ms per step, took [\d.]+
# prints: left after each epoch: [\d.]+ s, [\d.]+ s, [\d.]+ s
# prints: 48 steps; pauses: end of an epoch, evaluation
