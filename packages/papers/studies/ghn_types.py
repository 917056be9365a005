"""One hypernetwork per data type, or one for all: train them on two types and two seeds, and compare.

    python ghn_types.py --steps 100 --output FOLDER

Writes `digits-8-0`, `digits-8-1` and `digits-32-0.safetensors`: the digits as they are (1 x 8 x 8), and
enlarged to the shape of CIFAR-10 (3 x 32 x 32). Images of CIFAR-10 and Tiny-ImageNet cannot be had offline:
what differs here is the shape of the task. `embedding_study.py` reads them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from precision_time_papers.ghn.fit import fit_ghn
from precision_time_papers.ghn.training import TrainSettings

TRAINED = (("digits-32-0", 32, 0), ("digits-8-0", None, 0), ("digits-8-1", None, 1))
"""Name, side of the images, seed."""


def main() -> None:
    """Train those that are not there yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--meta-batch", type=int, default=4, help="networks per step")
    parser.add_argument("--image-batch", type=int, default=16, help="images per network and step")
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    for name, side, seed in TRAINED:
        file = asked.output / f"{name}.safetensors"
        if file.is_file():
            continue
        fitted = fit_ghn(
            "digits",
            TrainSettings(
                seed=seed, steps=asked.steps, meta_batch=asked.meta_batch, image_batch=asked.image_batch,
                networks=300,
            ),
            side=side,
            out=file,
            held_out_networks=8,
            command=f"python packages/papers/studies/ghn_types.py --steps {asked.steps}",
        )  # fmt: skip
        print(
            f"{name}: {fitted.scores[0].predicted:.3f} of test images, {fitted.weights.version}", flush=True
        )


if __name__ == "__main__":
    main()
