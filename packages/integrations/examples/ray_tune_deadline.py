"""Ray Tune with a deadline: trials that cannot end in time are stopped early."""

import os
import time

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray import tune

from precision_time_integrations.ray_tune import DeadlineScheduler

EPOCHS = 20


def train(config: dict) -> None:
    loss = 1.0
    for _ in range(EPOCHS):
        time.sleep(config["epoch_s"])  # a training epoch
        loss *= 0.9
        tune.report({"loss": loss})


ray.init(num_cpus=2, include_dashboard=False, logging_level="error", _node_ip_address="127.0.0.1")
scheduler = DeadlineScheduler(total=EPOCHS, trial_limit_s=4.0)
tuner = tune.Tuner(
    train,
    param_space={"epoch_s": tune.grid_search([0.02, 0.05, 1.0])},
    tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=scheduler),
    run_config=tune.RunConfig(verbose=0, storage_path=os.getcwd()),
)
for result in tuner.fit():
    ended = result.metrics["training_iteration"] == EPOCHS
    print(f"{result.config['epoch_s']} s per epoch: {'ended' if ended else 'stopped early'}")
print(*scheduler.reasons.values(), sep="\n")
ray.shutdown()

# prints: 0.02 s per epoch: ended
# prints: 1.0 s per epoch: stopped early
# prints: It needs .* s more at least, and .* s are left.
