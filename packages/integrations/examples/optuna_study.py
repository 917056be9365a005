"""Optuna with predictions: batches that fit, trials that can end in time, and a real run that is watched."""

import optuna
import torch

from precision_time_integrations.online.monitor import RunMonitor
from precision_time_integrations.optuna import DeadlinePruner, Predictions, distributions, report_eta

optuna.logging.set_verbosity(optuna.logging.WARNING)

# 1. Before anything is rented: what to search over, and what it costs.
bert = {"model": "bert-base", "device": "8xA100-SXM4-40GB", "seq_len": 128, "epochs": 3, "samples": 1_000_000}
choices = distributions(bert)
print(f"batch sizes up to {choices['batch_size'].high} fit")
predictions = Predictions(bert, options={"cloud": "aws"})


def predicted(trial: optuna.Trial) -> tuple[float, float]:
    trial.suggest_categorical("batch_size", [8, 32, 128])
    trial.suggest_categorical("precision", ["fp32", "bf16-mixed"])
    predictions.constrain(trial, time_limit_s=4 * 3600)
    return predictions.time_objective_s(trial), predictions.cost_objective_usd(trial)


study = optuna.create_study(directions=["minimize", "minimize"])
study.optimize(predicted, n_trials=20)
for trial in study.best_trials[:1]:
    print(f"fastest: {trial.params['precision']}, {trial.values[0] / 60:.0f} min, ${trial.values[1]:.0f}")

# 2. While trials run: those that cannot end in time stop early.
EPOCHS, STEPS = 5, 40
inputs = torch.randn(512, 64)
targets = inputs.square().sum(1, keepdim=True)


def train(trial: optuna.Trial) -> float:
    width = trial.suggest_categorical("width", [16, 2048])
    model = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=trial.suggest_float("lr", 1e-4, 1e-1, log=True))
    monitor = RunMonitor(total_steps=EPOCHS * STEPS)
    monitor.begin()
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            monitor.step()
        trial.report(loss.item(), epoch)
        report_eta(trial, monitor)
        if trial.should_prune():
            raise optuna.TrialPruned
    return loss.item()


pruner = DeadlinePruner(optuna.pruners.MedianPruner(), total_steps=EPOCHS, deadline=10.0, trial_limit_s=5.0)
study = optuna.create_study(pruner=pruner)
study.optimize(train, n_trials=8, timeout=10.0)
ended = study.get_trials(states=(optuna.trial.TrialState.COMPLETE,))
best = f"best loss {study.best_value:.3g}" if ended else "no trial could end in time"
print(f"{best}; stopped by the clock: {len(pruner.reasons)}")

# needs: optuna torch
# prints: batch sizes up to \d+ fit
# prints: fastest: bf16-mixed, \d+ min, \$\d+
# prints: (best loss .*|no trial could end in time); stopped by the clock: \d+
