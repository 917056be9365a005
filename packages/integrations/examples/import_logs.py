"""Measure a cluster from logs that are there already: runs as a table that `calibrate` reads.

The lines are a few of two public logs: Megatron-LM on 16 H100 (NVIDIA/Megatron-LM, issue 756) and nanoGPT on
one V100 (karpathy/nanoGPT, issue 215). What a log does not say of the job is stated beside it.
"""

from pathlib import Path

from precision_time_integrations.importers.api import import_runs, measured_runs, write_measurements

MEGATRON = """\
using world size: 16, data-parallel size: 4, tensor-model-parallel size: 4, pipeline-model-parallel size: 1
 iteration 71/ 100 | elapsed time per iteration (ms): 5361.6 | global batch size: 128 |
 iteration 72/ 100 | elapsed time per iteration (ms): 5470.7 | global batch size: 128 |
 iteration 73/ 100 | elapsed time per iteration (ms): 5829.9 | global batch size: 128 |
"""
NANOGPT = """\
iter 2980: loss 3.8993, time 1099.18ms, mfu 15.34%
iter 2990: loss 3.8853, time 1096.65ms, mfu 15.34%
step 3000: train loss 4.0390, val loss 4.0427
saving checkpoint to out
iter 3000: loss 4.2490, time 35392.33ms, mfu 13.85%
iter 3010: loss nan, time 1019.95ms, mfu 14.12%
iter 3020: loss nan, time 1015.95ms, mfu 14.36%
"""

Path("megatron.log").write_text(MEGATRON)
Path("nanogpt.log").write_text(NANOGPT)

found = import_runs(["megatron.log", "nanogpt.log"])
for run in measured_runs(found.runs):
    steady = run.steady
    print(f"{run.run.importer}: {steady.step_time_s:.3f} s per step, {steady.text}")
    print(f"{run.run.importer}: to be stated: {', '.join(run.missing)}")

stated = {"model": "mixtral-8x7b", "device": "H100-SXM5-80GB", "batch_size": 1, "precision": "bf16-mixed"}
megatron = import_runs(["megatron.log"], given=stated)
write_measurements(Path("measured.csv"), measured_runs(megatron.runs))
print(Path("measured.csv").read_text().splitlines()[0])

# prints: megatron: 5\.471 s per step, 3 of 3 steps used
# prints: megatron: to be stated: model, device
# prints: nanogpt: 1\.020 s per step, 3 of 5 steps used \(left out: 1 with an evaluation.*\)
# prints: nanogpt: to be stated: model, device, gpus, batch_size
# prints: gpus,tp,model,device,batch_size,precision,global_batch_size,step_time_s,.*
