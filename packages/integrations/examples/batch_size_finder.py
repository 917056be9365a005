"""The largest batch that runs, found from the largest that is predicted to fit."""

import torch

from precision_time_integrations.batch_size import find_batch_size, predicted_batch_size

request = {"model": "vgg16", "device": "V100-SXM2-16GB", "precision": "fp32"}
print(f"predicted: {predicted_batch_size(request)}")


def try_step(batch_size: int) -> None:
    """A training step; a GPU is not needed here, so the end of its memory stands in for that of a V100."""
    model = torch.nn.Linear(8, 1)
    model(torch.zeros(batch_size, 8)).sum().backward()
    if batch_size > 196:  # where measured peaks put it: 3.00 GiB at a batch of 4, 7.06 GiB at 64
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")


found = find_batch_size(try_step, request, mode="largest")
print(f"found: {found.batch_size} after {len(found.tries)} tries, {found.failures} of them out of memory")
plain = find_batch_size(try_step, start=2, mode="largest")
print(f"from 2: {plain.batch_size} after {len(plain.tries)} tries")

# needs: torch
# prints: predicted: 19\d
# prints: found: 19\d after [2-5] tries
# prints: from 2: 19\d after \d\d tries
