"""A toy training that a Slurm job starts: a small decoder on random tokens, on the CPU or a GPU."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--hidden", type=int, default=64)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--seq-len", type=int, default=32)
parser.add_argument("--steps", type=int, default=20)
given = parser.parse_args()

VOCABULARY, HEADS = 256, 4
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
block = nn.TransformerEncoderLayer(given.hidden, HEADS, 4 * given.hidden, batch_first=True, norm_first=True)
model = nn.Sequential(
    nn.Embedding(VOCABULARY, given.hidden),
    nn.TransformerEncoder(block, given.layers, enable_nested_tensor=False),
    nn.Linear(given.hidden, VOCABULARY),
).to(device)
optimizer = torch.optim.AdamW(model.parameters())

for _ in range(given.steps):
    tokens = torch.randint(VOCABULARY, (given.batch_size, given.seq_len), device=device)
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"Trained {given.steps} steps on {device}, loss {loss.item():.2f}")
