#!/bin/bash
#SBATCH --job-name=toy
#SBATCH --nodes=1 --ntasks=1 --gres=gpu:a100:1
#SBATCH --output=toy-%j.out
#
# Submit it with `precision-time slurm submit job.sh`: its time limit is the predicted one.
# Batch, length and devices are read from the lines below. Which model the script trains is not among its
# arguments, so it is said here; a script that is given --model resnet50 needs no such line.
#PRECISION_TIME model=decoder sizes='{"layers": 2, "hidden": 64, "heads": 4, "vocab": 256}' optimizer=adamw

STEPS=20
ARGS=(
  --layers 2 --hidden 64
  --batch-size 8 --seq-len 32   # of one device
)
srun python train.py "${ARGS[@]}" --steps $STEPS
