# ruff: noqa: E501 - lines of logs are as long as their tools write them
"""A few lines of a real log of each format: its figures, typed in again, with where they are from.

What is expected of each is read off the same lines.
"""

from __future__ import annotations

from typing import NamedTuple


class Log(NamedTuple):
    """An excerpt and what is in it."""

    text: str
    reports: int
    slowest_s: float
    """Of the steps that are logged, or of the differences of their times."""
    fastest_s: float
    total: int | None = None
    last: int = 0
    fields: dict[str, object] = {}


# https://github.com/pytorch/torchtitan/issues/1232 (2025-05-28); the lines on the model are of pull/1625.
TORCHTITAN = """\
[rank4]:[titan] 2025-08-22 07:52:56,570 - root - INFO - Building llama3 8B with TransformerModelArgs(_enforced='This \
field is used to enforce all fields have defaults.', dim=4096, n_layers=32, n_heads=32, n_kv_heads=8, \
vocab_size=128256, multiple_of=1024, ffn_dim_multiplier=1.3, norm_eps=1e-05, rope_theta=500000, max_seq_len=8192)
[rank4]:[titan] 2025-08-22 07:52:56,707 - root - INFO - CUDA capacity: NVIDIA H100 with 94.99GiB memory
[rank4]:[titan] 2025-08-22 07:52:56,724 - root - INFO - Applied selective activation checkpointing to the model
[rank0]:[titan] 2025-05-28 21:11:37,626 - root - INFO - Trainer is initialized with local batch size 2, \
global batch size 2, sequence length 4096, total steps 10 (warmup 2).
[rank0]:[titan] 2025-05-28 21:11:37,626 - root - INFO - Training starts at step 1.
[rank0]:[titan] 2025-05-28 21:13:37,816 - root - INFO - step:  1  loss: -1.0000  memory: 36.90GiB(46.63%)  tps: 4  tflops: 0.90  mfu: 0.29%
[rank0]:[titan] 2025-05-28 21:14:39,054 - root - INFO - step:  2  loss: -1.0000  memory: 42.78GiB(54.06%)  tps: 8  tflops: 1.81  mfu: 0.58%
[rank0]:[titan] 2025-05-28 21:15:40,293 - root - INFO - step:  3  loss: -1.0000  memory: 42.78GiB(54.06%)  tps: 8  tflops: 1.81  mfu: 0.58%
[rank0]:[titan] 2025-05-28 21:16:41,533 - root - INFO - step:  4  loss: -1.0000  memory: 42.78GiB(54.06%)  tps: 8  tflops: 1.81  mfu: 0.58%
[rank0]:[titan] 2025-05-28 21:17:42,765 - root - INFO - step:  5  loss: -1.0000  memory: 42.78GiB(54.06%)  tps: 8  tflops: 1.81  mfu: 0.58%
"""
# pytorch/torchtitan, README of the experiment with CUDA graphs of mixtures of experts (2026-05-04, 4 GB200).
TORCHTITAN_EXPERTS = """\
[titan] 2026-05-04 13:58:14,761 - root - INFO - torchtitan version: 0.2.2 (0.0.0 means __version__ is not defined).
[titan] 2026-05-04 13:58:15,361 - root - INFO - Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=2, cp=1, tp=2, ep=2
[titan] 2026-05-04 13:58:17,194 - root - INFO - Building graph_trainer/deepseek_v3 debugmodel
[titan] 2026-05-04 13:58:17,219 - root - INFO - CUDA capacity: NVIDIA GB200 with 187.28GiB memory
[titan] 2026-05-04 13:58:17,311 - root - INFO - Applied Data Parallel (simple_fsdp) (dp mode=fully_shard) to the model
[titan] 2026-05-04 13:58:21,899 - root - INFO - Trainer is initialized with local batch size 8, global batch size 16, gradient accumulation steps 1, sequence length 2048, total steps 10 (warmup 2)
[titan] 2026-05-04 13:58:22,031 - root - INFO - Training starts at step 1
[titan] 2026-05-04 13:58:41,402 - root - INFO - step:  1  loss:  4.09409  grad_norm:  3.6453  memory:  3.18GiB(1.70%)  tps: 339  tflops: 0.18  mfu: 0.01%
[titan] 2026-05-04 13:58:41,664 - root - INFO - step:  2  loss:  3.07209  grad_norm:  4.5404  memory:  3.18GiB(1.70%)  tps: 31,371  tflops: 17.03  mfu: 0.68%
[titan] 2026-05-04 13:58:41,729 - root - INFO - step:  3  loss:  2.47806  grad_norm:  4.1407  memory:  3.18GiB(1.70%)  tps: 125,180  tflops: 67.96  mfu: 2.72%
[titan] 2026-05-04 13:58:41,793 - root - INFO - step:  4  loss:  2.42329  grad_norm:  2.8168  memory:  3.18GiB(1.70%)  tps: 129,655  tflops: 70.39  mfu: 2.82%
[titan] 2026-05-04 13:58:41,863 - root - INFO - step:  5  loss:  2.23090  grad_norm:  2.6348  memory:  3.18GiB(1.70%)  tps: 116,451  tflops: 63.23  mfu: 2.53%
[titan] 2026-05-04 13:58:41,935 - root - INFO - step:  6  loss:  2.12690  grad_norm:  2.2734  memory:  3.18GiB(1.70%)  tps: 114,268  tflops: 62.04  mfu: 2.48%
[titan] 2026-05-04 13:58:41,999 - root - INFO - step:  7  loss:  2.02902  grad_norm:  1.9232  memory:  3.18GiB(1.70%)  tps: 129,971  tflops: 70.57  mfu: 2.82%
[titan] 2026-05-04 13:58:42,061 - root - INFO - step:  8  loss:  2.00265  grad_norm:  2.2169  memory:  3.18GiB(1.70%)  tps: 131,613  tflops: 71.46  mfu: 2.86%
[titan] 2026-05-04 13:58:42,123 - root - INFO - step:  9  loss:  2.21702  grad_norm:  2.0541  memory:  3.18GiB(1.70%)  tps: 132,235  tflops: 71.80  mfu: 2.87%
[titan] 2026-05-04 13:58:42,191 - root - INFO - step: 10  loss:  1.93761  grad_norm:  1.7217  memory:  3.18GiB(1.70%)  tps: 121,163  tflops: 65.78  mfu: 2.63%
[titan] 2026-05-04 13:58:44,191 - root - INFO - Training completed
"""
# https://github.com/NVIDIA/Megatron-LM/issues/756 (2024-04-06): 16 H100, Mixtral 8x7B.
MEGATRON = """\
 [2024-04-06 03:02:12] iteration       71/     100 | consumed samples:         9088 | elapsed time per iteration (ms): 5361.6 | throughput per GPU (TFLOP/s/GPU): 243.6 | learning rate: 1.420000E-05 | global batch size:   128 | lm loss: 1.818812E+00 |
 [2024-04-06 03:02:18] iteration       72/     100 | consumed samples:         9216 | elapsed time per iteration (ms): 5470.7 | throughput per GPU (TFLOP/s/GPU): 238.7 | learning rate: 1.440000E-05 | global batch size:   128 | lm loss: 1.820313E+00 |
 [2024-04-06 03:02:24] iteration       73/     100 | consumed samples:         9344 | elapsed time per iteration (ms): 5829.9 | throughput per GPU (TFLOP/s/GPU): 224.0 | learning rate: 1.460000E-05 | global batch size:   128 | lm loss: 1.798953E+00 |
"""
# https://github.com/epfLLM/Megatron-LLM/issues/11: the older line without a time. The arguments above it are
# those of https://github.com/NVIDIA/Megatron-LM/issues/27 (40 layers, hidden 1536, 16 heads) in the form of
# https://github.com/NVIDIA/Megatron-LM/issues/91.
MEGATRON_OLD = """\
using world size: 8, data-parallel-size: 4, tensor-model-parallel size: 2, pipeline-model-parallel size: 1
------------------------ arguments ------------------------
  bf16 ............................................ False
  fp16 ............................................ True
  global_batch_size ............................... 1024
  hidden_size ..................................... 1536
  micro_batch_size ................................ 4
  num_attention_heads ............................. 16
  num_layers ...................................... 40
  padded_vocab_size ............................... 50304
  pipeline_model_parallel_size .................... 1
  seq_length ...................................... 1024
  tensor_model_parallel_size ...................... 2
  world_size ...................................... 8
-------------------- end of arguments ---------------------
 iteration      182/  250000 | consumed samples:       186368 | elapsed time per iteration (ms): 126995.3 | learning rate: 1.365E-05 | global batch size:  1024 | lm loss: 2.382640E+00 | loss scale: 1.0 |
 iteration      183/  250000 | consumed samples:       187392 | elapsed time per iteration (ms): 125553.7 | learning rate: 1.372E-05 | global batch size:  1024 | lm loss: 2.471678E+00 | loss scale: 1.0 |
 iteration      184/  250000 | consumed samples:       188416 | elapsed time per iteration (ms): 127804.5 | learning rate: 1.380E-05 | global batch size:  1024 | lm loss: 2.408367E+00 | loss scale: 1.0 |
 iteration      185/  250000 | consumed samples:       189440 | elapsed time per iteration (ms): 130554.9 | learning rate: 1.387E-05 | global batch size:  1024 | lm loss: 2.567000E+00 | loss scale: 1.0 |
"""
# argonne-lcf/Megatron-DeepSpeed, notes on 48 nodes of Polaris (2024-03-07): DeepSpeed's lines stand beside.
MEGATRON_DEEPSPEED = """\
[2024-03-07 15:27:02,646] [INFO] [timer.py:260:stop] epoch=0/micro_step=199/global_step=199, RunningAvgSamplesPerSec=58.730622229657506, CurrSamplesPerSec=61.35304005128382, MemAllocated=6.01GB, MaxMemAllocated=19.52GB
 iteration      199/  317892 | consumed samples:       152832 | consumed tokens:    625999872 | elapsed time per iteration (ms): 14287.5 | learning rate: 2.407E-04 | global batch size:   768 | lm loss: 5.905366E+00 | samples per second: 53.753 | tokens per gpu per second (tgs): 1146.733 | TFLOPs: 69.85 |
"""
# https://github.com/huggingface/nanotron/issues/390 (2025-10-17)
NANOTRON = """\
10/17/2025 16:31:56 [INFO|DP=0|PP=0|TP=0]: iteration: 327281 / 378950 | consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | global_batch_size: 64 | lm_loss: 2.38 |
10/17/2025 16:32:07 [INFO|DP=0|PP=0|TP=0]: iteration: 327282 / 378950 | consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | global_batch_size: 64 | lm_loss: 2.35 |
10/17/2025 16:32:19 [INFO|DP=0|PP=0|TP=0]: iteration: 327283 / 378950 | consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | global_batch_size: 64 | lm_loss: 2.51 |
"""
# https://github.com/NVIDIA-BioNeMo/bionemo-recipes/pull/740
NEMO = """\
Training epoch 0, iteration 120/149 | lr: 3e-05 | consumed_samples: 121 | global_batch_size: 1 | global_step: 120 | reduced_train_loss: 1.233 | train_step_timing in s: 0.03146 | val_loss: 4.106
Training epoch 0, iteration 121/149 | lr: 3e-05 | consumed_samples: 122 | global_batch_size: 1 | global_step: 121 | reduced_train_loss: 1.288 | train_step_timing in s: 0.03163 | val_loss: 4.106
Training epoch 0, iteration 122/149 | lr: 3e-05 | consumed_samples: 123 | global_batch_size: 1 | global_step: 122 | reduced_train_loss: 1.333 | train_step_timing in s: 0.03215 | val_loss: 4.106
"""
# The bar of NeMo 1, quoted in a public script that takes it apart (file 31090774540 of the code search).
NEMO_BAR = (
    "Epoch 0: :   1%|▏                 | 57/4900 [10:58<15:32:28, v_num=qhyq, reduced_train_loss=6.830, "
    "global_step=56.00, consumed_samples=7296.0, train_step_timing in s=11.30]\r"
    "Epoch 0: :   2%|▍               | 116/4900 [21:47<14:58:56, v_num=qhyq, reduced_train_loss=5.340, "
    "global_step=115.0, consumed_samples=14848.0, train_step_timing in s=11.20]\n"
)
# https://github.com/AI-Hypercomputer/maxtext/pull/4847 (2026-08-11): the first step is not waited for. The
# configuration is that of pull/761.
MAXTEXT = """\
Config param max_target_length: 2048
Config param per_device_batch_size: 24.0
Config param run_name: test
Config param steps: 10
Num_devices: 4, shape (1, 1, 4, 1)
I0811 21:54:55.531340 138304841739136 metric_logger.py:226] completed step: 1, seconds: 0.631, TFLOP/s/device: 5688.282, Tokens/s/device: 311629.521, total_weights: 1572864, loss: 12.979
I0811 21:55:06.119312 138304841739136 metric_logger.py:226] completed step: 2, seconds: 10.228, TFLOP/s/device: 350.869, Tokens/s/device: 19222.175, total_weights: 1572864, loss: 12.980
I0811 21:55:16.704861 138304841739136 metric_logger.py:226] completed step: 3, seconds: 10.344, TFLOP/s/device: 346.932, Tokens/s/device: 19006.461, total_weights: 1572864, loss: 12.979
"""
# https://github.com/karpathy/nanoGPT/issues/215 (2023-03-22, one V100): an evaluation before step 3000.
NANOGPT = """\
2023-03-22 09:31:45 iter 2980: loss 3.8993, time 1099.18ms, mfu 15.34%
2023-03-22 09:31:56 iter 2990: loss 3.8853, time 1096.65ms, mfu 15.34%
2023-03-22 09:32:32 step 3000: train loss 4.0390, val loss 4.0427
saving checkpoint to out
2023-03-22 09:32:41 iter 3000: loss 4.2490, time 35392.33ms, mfu 13.85%
2023-03-22 09:32:52 iter 3010: loss nan, time 1019.95ms, mfu 14.12%
2023-03-22 09:33:02 iter 3020: loss nan, time 1015.95ms, mfu 14.36%
2023-03-22 09:33:12 iter 3030: loss nan, time 1017.59ms, mfu 14.58%
"""
# eth-cscs/deepspeed-examples (2022-08-29), and the form of the configuration that DeepSpeed prints.
DEEPSPEED = """\
[2022-08-29 06:57:00,000] [INFO] [config.py:1001:print]   train_batch_size ............. 512
[2022-08-29 06:58:56,121] [INFO] [logging.py:68:log_dist] [Rank 0] step=20, skipped=17, lr=[5e-05], mom=[(0.9, 0.999)]
[2022-08-29 06:58:56,176] [INFO] [timer.py:198:stop] 0/20, RunningAvgSamplesPerSec=232.7340551694273, CurrSamplesPerSec=227.48090316379353, MemAllocated=0.36GB, MaxMemAllocated=15.06GB
[2022-08-29 06:59:18,633] [INFO] [logging.py:68:log_dist] [Rank 0] step=30, skipped=17, lr=[5e-05], mom=[(0.9, 0.999)]
[2022-08-29 06:59:18,687] [INFO] [timer.py:198:stop] 0/30, RunningAvgSamplesPerSec=230.82135336499695, CurrSamplesPerSec=227.45044884073528, MemAllocated=0.36GB, MaxMemAllocated=15.06GB
[2022-08-29 06:59:41,140] [INFO] [logging.py:68:log_dist] [Rank 0] step=40, skipped=17, lr=[5e-05], mom=[(0.9, 0.999)]
"""
# https://github.com/facebookresearch/fairseq/issues/2338 (2020-07-17)
FAIRSEQ = """\
2020-07-17 07:00:01 | INFO | fairseq_cli.train | training on 1 GPUs
2020-07-17 07:11:02 | INFO | train_inner | epoch 001:   2800 / 160368 loss=9.255, ppl=611.12, wps=57.3, ups=0.04, wpb=1613, bsz=80, num_updates=2800, lr=2.8e-05, gnorm=3.23, train_wall=13, wall=1236
2020-07-17 07:11:31 | INFO | train_inner | epoch 001:   2900 / 160368 loss=9.376, ppl=504.73, wps=53.5, ups=0.04, wpb=1504, bsz=64, num_updates=2900, lr=2.9e-05, gnorm=2.39, train_wall=13, wall=1265
2020-07-17 07:12:00 | INFO | train_inner | epoch 001:   3000 / 160368 loss=9.376, ppl=664.29, wps=16.2, ups=0.03, wpb=469, bsz=8, num_updates=3000, lr=3e-05, gnorm=3.214, train_wall=14, wall=1294
2020-07-17 07:12:27 | INFO | train_inner | epoch 001:   3100 / 160368 loss=9.251, ppl=609.46, wps=60.4, ups=0.04, wpb=1661, bsz=48, num_updates=3100, lr=3.1e-05, gnorm=1.859, train_wall=12, wall=1321
"""
# https://github.com/open-mmlab/mmdetection/issues/4090 (2020-11-11)
OPENMMLAB = """\
2020-11-11 18:27:52,420 - mmdet - INFO - Epoch [1][2150/29317]\tlr: 2.000e-02, eta: 1 day, 16:24:41, time: 0.391, data_time: 0.009, memory: 3946, loss: 1.0037
2020-11-11 18:28:12,003 - mmdet - INFO - Epoch [1][2200/29317]\tlr: 2.000e-02, eta: 1 day, 16:21:04, time: 0.391, data_time: 0.009, memory: 3946, loss: 1.0323
2020-11-11 18:28:31,705 - mmdet - INFO - Epoch [1][2250/29317]\tlr: 2.000e-02, eta: 1 day, 16:17:58, time: 0.394, data_time: 0.009, memory: 3946, loss: 0.9800
2020-11-11 18:28:51,400 - mmdet - INFO - Epoch [1][2300/29317]\tlr: 2.000e-02, eta: 1 day, 16:14:54, time: 0.394, data_time: 0.009, memory: 3946, loss: 0.9889
2020-11-11 18:29:10,815 - mmdet - INFO - Epoch [1][2350/29317]\tlr: 2.000e-02, eta: 1 day, 16:11:19, time: 0.388, data_time: 0.009, memory: 3946, loss: 0.9516
"""
# https://github.com/open-mmlab/mmengine/pull/155 (2022-04-21)
MMENGINE = """\
04/21 21:03:53 - mmengine - INFO - Epoch(train) [1][10/90]  lr: 1.000e-02  eta: 0:00:25  time: 0.010  data_time: 0.000  memory: 0  loss: 11.4723
04/21 21:03:53 - mmengine - INFO - Epoch(train) [1][20/90]  lr: 1.000e-02  eta: 0:00:13  time: 0.005  data_time: 0.000  memory: 0  loss: 1.5616
04/21 21:03:53 - mmengine - INFO - Epoch(train) [1][30/90]  lr: 1.000e-02  eta: 0:00:09  time: 0.004  data_time: 0.000  memory: 0  loss: -6.0185
"""
# https://github.com/facebookresearch/detectron2/issues/195 (2019-11-01); time is the mean since the start.
DETECTRON2 = """\
[11/01 11:27:04 d2.utils.events]: eta: 8:05:12  iter: 1259  total_loss: 1.012  loss_cls: 0.714  time: 0.3322  data_time: 0.0334  lr: 0.010000  max_mem: 3961M
[11/01 11:27:11 d2.utils.events]: eta: 8:04:51  iter: 1279  total_loss: 0.971  loss_cls: 0.699  time: 0.3323  data_time: 0.0418  lr: 0.010000  max_mem: 3961M
[11/01 11:27:18 d2.utils.events]: eta: 8:04:38  iter: 1299  total_loss: 0.980  loss_cls: 0.697  time: 0.3323  data_time: 0.0353  lr: 0.010000  max_mem: 3961M
[11/01 11:27:24 d2.utils.events]: eta: 8:03:55  iter: 1319  total_loss: 0.950  loss_cls: 0.668  time: 0.3322  data_time: 0.0292  lr: 0.010000  max_mem: 3961M
"""
# https://github.com/ROCm/pytorch/issues/1147 (2022-12-07): pytorch/examples; the lines of the next epoch have its form.
IMAGENET = """\
=> creating model 'mobilenet_v3_small'
Epoch: [0][   1/1424]   Time 60.000 (60.000)    Data 15.133 (15.133)    Loss 6.9078e+00 (6.9078e+00)    Acc@1   0.00 (  0.00)   Acc@5   0.33 (  0.33)
Epoch: [0][  21/1424]   Time  1.175 ( 4.022)    Data  0.001 ( 0.722)    Loss 6.8997e+00 (6.9054e+00)    Acc@1   0.33 (  0.11)   Acc@5   0.78 (  0.60)
Epoch: [0][  41/1424]   Time  1.186 ( 2.652)    Data  0.001 ( 0.384)    Loss 6.8966e+00 (6.9001e+00)    Acc@1   0.00 (  0.17)   Acc@5   0.56 (  0.70)
Epoch: [0][  61/1424]   Time  1.205 ( 2.193)    Data  0.001 ( 0.269)    Loss 6.8423e+00 (6.8909e+00)    Acc@1   0.22 (  0.17)   Acc@5   1.33 (  0.75)
Epoch: [0][  81/1424]   Time  1.188 ( 1.951)    Data  0.001 ( 0.209)    Loss 6.8351e+00 (6.8794e+00)    Acc@1   0.00 (  0.16)   Acc@5   1.00 (  0.80)
Test: [ 1/56]   Time 12.000 (12.000)    Loss 5.8972e+00 (5.8972e+00)    Acc@1   3.78 (  3.78)   Acc@5   9.06 (  9.06)
Epoch: [1][   1/1424]\tTime 16.102 (16.102)\tData 14.990 (14.990)\tLoss 4.8078e+00 (4.8078e+00)\tAcc@1   8.00 (  8.00)\tAcc@5  20.33 ( 20.33)
Epoch: [1][  21/1424]\tTime  1.181 ( 1.902)\tData  0.001 ( 0.714)\tLoss 4.7997e+00 (4.8054e+00)\tAcc@1   8.33 (  8.11)\tAcc@5  20.78 ( 20.60)
"""
# https://github.com/fangwei123456/Spike-Element-Wise-ResNet/issues/10: torchvision's MetricLogger; its arguments above.
METRIC_LOGGER = """\
Namespace(data_path='/datasets/imagenet', model='resnet18', device='cuda', batch_size=32, epochs=90, lr=0.1, world_size=8)
Epoch: [0]  [ 103/5005]  eta: 4:43:31  lr: 0.1  img/s: 13.62830983555788  loss: 6.8536 (6.9458)  acc1: 0.0000 (0.2103)  acc5: 0.0000 (0.9916)  time: 2.5401  data: 0.0336  max mem: 3524
Epoch: [0]  [ 104/5005]  eta: 4:47:43  lr: 0.1  img/s: 3.5788954758177014  loss: 6.8593 (6.9466)  acc1: 0.0000 (0.2083)  acc5: 0.0000 (0.9821)  time: 2.8689  data: 0.0337  max mem: 3524
Epoch: [0]  [ 105/5005]  eta: 4:45:43  lr: 0.1  img/s: 32.16833850427397  loss: 6.8593 (6.9471)  acc1: 0.0000 (0.2064)  acc5: 0.0000 (0.9729)  time: 2.7337  data: 0.0039  max mem: 3524
"""
# https://github.com/keras-team/keras/pull/8169 (2017-10-17)
KERAS = """\
Epoch 1/12
60000/60000 [==============================] - 5s 87us/step - loss: 0.3437 - acc: 0.8957 - val_loss: 0.0759
Epoch 2/12
60000/60000 [==============================] - 5s 77us/step - loss: 0.1145 - acc: 0.9671 - val_loss: 0.0518
"""
# https://github.com/Lightning-AI/pytorch-lightning/issues/4225
LIGHTNING = """\
Training:   0%|          | 0/18 [00:00<?, ?it/s]
Epoch 0:   6%|▌         | 1/18 [00:08<02:29,  8.77s/it, loss=10.473, v_num=193315]\r\
Epoch 0:  11%|█         | 2/18 [00:11<01:33,  5.82s/it, loss=10.224, v_num=193315]\r\
Epoch 0:  17%|█▋        | 3/18 [00:14<01:13,  4.87s/it, loss=10.047, v_num=193315]\r\
Epoch 0:  22%|██▏       | 4/18 [00:17<01:02,  4.47s/it, loss=9.926, v_num=193315]\r\
Epoch 0:  28%|██▊       | 5/18 [00:20<00:53,  4.14s/it, loss=9.847, v_num=193315]"""
# A run of Lightning 2.6.6 on this project's machine (40 steps of 20 ms, 3 epochs, CPU, 2026-11-23): rich's bar.
LIGHTNING_RICH = """\
\x1b[2KSanity Checking \x1b[35m━━━\x1b[0m 1/2 \x1b[2m0:00:00 • -:--:--\x1b[0m \x1b[2;4m0.00it/s\x1b[0m
\x1b[2KEpoch 0/2  \x1b[90m━━━━━\x1b[0m 1/40 \x1b[2m0:00:00 • -:--:--\x1b[0m \x1b[2;4m0.00it/s\x1b[0m v_num: 1.000 loss:
\x1b[2K\x1b[1A\x1b[2KEpoch 0/2  \x1b[35m╸\x1b[0m\x1b[90m━━━━\x1b[0m 2/40 \x1b[2m0:00:00 • 0:00:01\x1b[0m \x1b[2;4m43.88it/s\x1b[0m
\x1b[2K\x1b[1A\x1b[2KEpoch 0/2  \x1b[35m━━━━\x1b[0m 39/40 \x1b[2m0:00:01 • 0:00:01\x1b[0m \x1b[2;4m33.70it/s\x1b[0m
Epoch 2/2  ━━━━━━━━━━━━━━━━━ 40/40 0:00:01 • 0:00:00 37.56it/s v_num: 0.000
`Trainer.fit` stopped: `max_epochs=3` reached.
"""
# https://github.com/huggingface/transformers/issues/14531 (2021-11-26): T5-11B, DeepSpeed's lines in the bar.
HF_DEEPSPEED = """\
{'loss': 6.2645, 'learning_rate': 0.001, 'epoch': 0.02}
{'loss': 0.0, 'learning_rate': 0.001, 'epoch': 0.06}
  8%|████    | 1999/24128 [1:52:09<20:27:23,  3.33s/it][2021-11-26 03:07:16,494] [INFO] [logging.py:69:log_dist] \
[Rank 0] step=2000, skipped=1995, lr=[0.001, 0.001], mom=[0.0, 0.0]
[2021-11-26 03:07:16,494] [INFO] [timer.py:181:stop] 0/2000, SamplesPerSec=9.526738918021234
"""
# A run of transformers 5.23's Trainer on this project's machine (BERT of 2 layers, 30 steps, CPU, 2026-11-23):
# its bar, what it logs, and the bar of an evaluation inside of it.
HF_TRAINER = """\
[transformers] ***** Running training *****
[transformers]   Instantaneous batch size per device = 8
[transformers]   Total train batch size (w. parallel, distributed & accumulation) = 16
[transformers]   Gradient Accumulation steps = 2
[transformers]   Total optimization steps = 30
  0%|          | 0/30 [00:00<?, ?it/s]\r 13%|█▎        | 4/30 [00:00<00:00, 38.51it/s]\r\
{'loss': '1.389', 'grad_norm': '0.4865', 'learning_rate': '4.333e-05', 'epoch': '0.7692'}
 33%|███▎      | 10/30 [00:00<00:00, 38.51it/s]\r  0%|          | 0/13 [00:00<?, ?it/s]\x1b[A\r\
100%|██████████| 13/13 [00:00<00:00, 616.03it/s]\x1b[A\r 40%|████      | 12/30 [00:00<00:00, 60.05it/s]\r\
{'eval_loss': '0.6935', 'eval_runtime': '0.0258', 'eval_steps_per_second': '503', 'epoch': '1.462'}
{'train_runtime': '0.5981', 'train_samples_per_second': '802.5', 'train_steps_per_second': '50.16', 'epoch': '4.3'}
100%|██████████| 30/30 [00:00<00:00, 50.16it/s]
"""
# https://github.com/official-stockfish/nnue-pytorch/issues/83, as any other tqdm bar.
TQDM = "Iterations:  39%|█████▍      | 4846/12331 [05:59<09:15, 13.47it/s, loss=0.0136]\n"
# threestudio's documentation (2023-05-24): the bar of a loader without a length. Its first line is half of it.
OPEN_BAR = """\
Epoch 0: : 5000it [12:42,  6.56it/s]\r\
Epoch 0: : 10000it [25:24,  6.56it/s][INFO] `Trainer.fit` stopped: `max_steps=10000` reached.
Epoch 0: : 10000it [25:24,  6.56it/s]
"""
# https://github.com/ultralytics/ultralytics/issues/7653: a bar per epoch, and one of each validation.
ULTRALYTICS = """\
      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size
    31/1000      6.73G      1.235     0.5911       1.14         11        640: 100%|██████████| 16/16 [00:05<00:00,  2.83it/s]
                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100%|██████████| 8/8 [00:03<00:00,  2.12it/s]
                   all        722       1444      0.939      0.927      0.967      0.551

      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size
    32/1000      6.73G      1.186     0.5757      1.128          6        640: 100%|██████████| 16/16 [00:05<00:00,  2.95it/s]
                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100%|██████████| 8/8 [00:03<00:00,  2.12it/s]
    33/1000      6.73G      1.168     0.5611      1.129          6        640: 100%|██████████| 16/16 [00:05<00:00,  2.77it/s]
"""
# https://github.com/open-mmlab/mmdetection/issues/4090 in the words of mmcv's JSON logger.
MM_JSON = """\
{"env_info": "sys.platform: linux", "seed": null}
{"mode": "train", "epoch": 1, "iter": 50, "lr": 0.02, "memory": 3946, "data_time": 0.009, "loss": 1.0, "time": 0.391}
{"mode": "train", "epoch": 1, "iter": 100, "lr": 0.02, "memory": 3946, "data_time": 0.009, "loss": 1.0, "time": 0.394}
{"mode": "val", "epoch": 1, "iter": 625, "lr": 0.02, "bbox_mAP": 0.3}
"""
# https://github.com/facebookresearch/fairseq/issues/2201
FAIRSEQ_JSON = (
    '{"epoch": 27, "update": 26.267, "loss": "8.206", "wps": "1195.4", "ups": "1.62", "wpb": "738.1", "bsz": '
    '"46.4", "num_updates": "33700", "lr": "0.00017226", "train_wall": "61", "wall": "30542"}\n'
)

LOGS: dict[str, tuple[str, Log]] = {
    "torchtitan": ("torchtitan", Log(TORCHTITAN, 5, 61.240, 61.232, 10, 5,
        {"batch_size": 2, "seq_len": 4096, "model": "llama3-8b", "device": "H100-SXM5-80GB",
         "recompute": "selective"})),
    "torchtitan-experts": ("torchtitan", Log(TORCHTITAN_EXPERTS, 10, 0.262, 0.062, 10, 10,
        {"gpus": 4, "zero_stage": 3, "tp": 2, "ep": 2, "batch_size": 8, "global_batch_size": 16, "seq_len": 2048})),
    "megatron": ("megatron", Log(MEGATRON, 3, 5.8299, 5.3616, 100, 73)),
    "megatron-old": ("megatron", Log(MEGATRON_OLD, 4, 130.5549, 125.5537, 250_000, 185,
        {"gpus": 8, "tp": 2, "batch_size": 4, "precision": "fp16-mixed", "model": "gpt2-1.2b"})),
    "megatron-deepspeed": ("megatron", Log(MEGATRON_DEEPSPEED, 1, 14.2875, 14.2875, 317_892, 199)),
    "nanotron": ("megatron", Log(NANOTRON, 3, 11.5, 11.5, 378_950, 327_283)),
    "nemo": ("nemo", Log(NEMO, 3, 0.03215, 0.03146, 150, 123)),
    "nemo-bar": ("nemo", Log(NEMO_BAR, 2, 11.30, 11.20, 4900, 116)),
    "maxtext": ("maxtext", Log(MAXTEXT, 3, 10.344, 0.631, 10, 4, {"gpus": 4, "batch_size": 24, "seq_len": 2048})),
    "nanogpt": ("nanogpt", Log(NANOGPT, 6, 35.39233, 1.01595, None, 3031)),
    "deepspeed": ("deepspeed", Log(DEEPSPEED, 3, 2.2512, 2.2507, None, 40, {"global_batch_size": 512})),
    "fairseq": ("fairseq", Log(FAIRSEQ, 4, 1 / 0.04, 0.27, None, 3100, {"gpus": 1})),
    "openmmlab": ("openmmlab", Log(OPENMMLAB, 5, 0.394, 0.388, None, 2350)),
    "mmengine": ("openmmlab", Log(MMENGINE, 3, 0.010, 0.004, None, 30)),
    "detectron2": ("detectron2", Log(DETECTRON2, 4, 0.3323, 0.3, None, 1320)),
    "imagenet": ("pytorch-examples", Log(IMAGENET, 7, 60.0, 1.175, None, 1445, {"model": "mobilenet_v3_small"})),
    "metric-logger": ("pytorch-examples", Log(METRIC_LOGGER, 3, 2.8689, 2.5401, 450_450, 106,
        {"model": "resnet18", "batch_size": 32, "gpus": 8})),
    "keras": ("keras", Log(KERAS, 2, 87e-6, 77e-6, 720_000, 120_000)),
    "lightning": ("lightning", Log(LIGHTNING, 5, 8.77, 3.0, None, 5)),
    "lightning-rich": ("lightning", Log(LIGHTNING_RICH, 4, 1 / 33.70, 1 / 43.88, 120, 120)),
    "hf-deepspeed": ("deepspeed", Log(HF_DEEPSPEED, 1, 1e9, 0.0, None, 2000)),
    "hf-trainer": ("hf-log", Log(HF_TRAINER, 4, 1 / 38.51, 1 / 60.05, 30, 30,
        {"batch_size": 8, "num_microbatches": 2, "global_batch_size": 16, "gpus": 1})),
    "tqdm": ("tqdm", Log(TQDM, 1, 1 / 13.47, 1 / 13.47, 12_331, 4846)),
    "open-bar": ("tqdm", Log(OPEN_BAR, 2, 1 / 6.56, 1 / 6.57, None, 10_000)),
    "ultralytics": ("tqdm", Log(ULTRALYTICS, 3, 1 / 2.77, 1 / 3.2, 16_000, 48)),
    "mm-json": ("json-lines", Log(MM_JSON, 2, 0.394, 0.391, None, 100)),
    "fairseq-json": ("fairseq", Log(FAIRSEQ_JSON, 1, 1 / 1.62, 1 / 1.62, None, 33_700)),
}  # fmt: skip
"""Format and excerpt, by a name for tests."""
