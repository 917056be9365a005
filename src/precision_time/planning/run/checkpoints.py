"""What a checkpoint holds."""

from __future__ import annotations

from ...cost.job import Job
from ...cost.optimizer import state_bytes, states_per_param


def checkpoint_bytes(job: Job) -> float:
    """Bytes of a checkpoint over all devices, each element once: weights, masters, optimizer states.

    Frozen weights do not change and are not counted. BLOOM's 176B parameters in bf16 with fp32 masters and
    Adam come to 2.46 TB; 2.3 TB are published.
    """
    policy, optimizer = job.precision, job.workload.optimizer
    states = states_per_param(optimizer) * state_bytes(optimizer, policy)
    master = policy.master.num_bytes if policy.master is not None else 0.0
    return job.workload.graph.trainable_params * (policy.param.num_bytes + master + states)
