"""A SkyPilot task: what each choice of hosts takes and costs, and the estimator of SkyPilot's optimizer."""

from pathlib import Path
from types import SimpleNamespace

from precision_time.io import read_yaml
from precision_time_integrations.job_files import estimate_file
from precision_time_integrations.skypilot import time_estimator

path = Path(__file__).with_suffix(".yaml")
for job in estimate_file(path):
    print(
        f"{job.step.gpus} x {job.step.device}: {job.run.total_s / 3600:.1f} h, 90 % within "
        f"{job.duration_s(0.9) / 3600:.1f} h, ${job.cost_usd:.0f}"
    )

# With SkyPilot: task = sky.Task.from_yaml(path); task.set_time_estimator(time_estimator(task))
seconds = time_estimator(read_yaml(path.read_text()))
resources = SimpleNamespace(accelerators={"A100-80GB": 8}, cloud="AWS", region=None, use_spot=True)
print(f"SkyPilot is told {seconds(resources)} s")

# prints: 16 x A100-SXM4-80GB: \d+\.\d h, 90 % within \d+\.\d h, \$\d+
# prints: 16 x V100-SXM2-32GB: \d+\.\d h, 90 % within \d+\.\d h, \$\d+
# prints: SkyPilot is told \d+ s
