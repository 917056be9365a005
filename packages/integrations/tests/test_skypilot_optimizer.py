"""SkyPilot's own optimizer asks our estimator, and takes other hosts than without it.

No cloud is asked: Lambda is declared enabled, and its catalog is written from the price list that ships,
which was made from those of SkyPilot. Seen with SkyPilot 0.14.1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from precision_time.hardware.prices.offers import offers
from surface import SOURCES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("sky") is None, reason="skypilot is not installed"),
]
SOURCE = os.pathsep.join(map(str, SOURCES.values()))
NAMES = {
    "A100-SXM4-80GB": "A100-80GB", "H100-SXM5-80GB": "H100", "V100-SXM2-16GB": "V100", "A10": "A10",
    "A6000": "A6000",
}  # fmt: skip
PROGRAM = """
import json, sys
import sky
from sky import clouds, optimizer
from sky.utils.common import OptimizeTarget
from precision_time_integrations.skypilot import time_estimator

optimizer.sky_check.get_cached_enabled_clouds_or_refresh = lambda *_, **__: [clouds.Lambda()]
choices = ["V100:8", "A100-80GB:8", "H100:8", "A10:1", "A6000:4"]
config = {
    "resources": {"any_of": [{"accelerators": each} for each in choices], "infra": "lambda"},
    "run": "torchrun --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE --nnodes=$SKYPILOT_NUM_NODES run_mlm.py "
           "--model_name_or_path bert-large-uncased --per_device_train_batch_size 32 --bf16",
}
chosen = {}
for estimated in (False, True):
    for target in (OptimizeTarget.COST, OptimizeTarget.TIME):
        with sky.Dag() as dag:
            task = sky.Task.from_yaml_config(json.loads(json.dumps(config)))
        seconds = time_estimator(task, epochs=3, samples=1_000_000, seq_len=128)
        if estimated:
            task.set_time_estimator(seconds)
        best = optimizer.Optimizer.optimize(dag, minimize=target, quiet=True).tasks[0].best_resources
        [(name, count)] = best.accelerators.items()
        chosen[f"{target.name} {estimated}"] = [f"{name}:{count:g}", seconds(best), best.get_cost(3600)]
json.dump(chosen, open(sys.argv[1], "w"))
"""


def test_the_optimizer_takes_the_cheapest_and_the_fastest_run(tmp_path: Path) -> None:
    catalogs = tmp_path / ".sky" / "catalogs" / "v8"
    for cloud in ("lambda", "common"):
        (catalogs / cloud).mkdir(parents=True)
    rows = [
        f"{each.instance_type},{NAMES[each.device]},{each.devices_per_instance}.0,88.0,448.0,{each.usd_per_hour},"
        f"{each.region},,"
        for each in offers(clouds=["lambda"])
        if each.device in NAMES and each.usd_per_hour
    ]
    header = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice"
    (catalogs / "lambda" / "vms.csv").write_text("\n".join([header, *rows]))
    known = [f"{name},\"['Lambda']\"" for name in NAMES.values()]
    (catalogs / "common" / "accelerators.csv").write_text("\n".join(["AcceleratorName,Clouds", *known]))
    found = tmp_path / "chosen.json"
    environment = os.environ | {
        "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join([SOURCE, *filter(None, sys.path)]),
        "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(found)], env=environment, cwd=tmp_path, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    chosen = json.loads(found.read_text())
    # SkyPilot assumes an hour for every choice: the cheapest hour wins, with the estimates the cheapest run.
    assert chosen["COST False"][0] == "A10:1"
    cheapest, seconds, usd_per_hour = chosen["COST True"]
    assert cheapest == "A6000:4"
    assert seconds * usd_per_hour < chosen["COST False"][1] * chosen["COST False"][2]
    assert chosen["TIME True"][0] == "H100:8"
    assert chosen["TIME True"][1] < chosen["TIME False"][1]
