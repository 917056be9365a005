"""The kinds of job that are read: where each has its pods, its limit of time, and what it says of itself.

Places of fields as the schemas have them: batch/v1 of Kubernetes 1.37; kubeflow.org/v1 of kubeflow/trainer at
ee1162919408; kubeflow.org/v2beta1 of kubeflow/mpi-operator at caa3c47fc42e; trainer.kubeflow.org/v1alpha1
of kubeflow/trainer at 8c0f5059bd51; ray.io/v1 of ray-project/kuberay at feeaf72facab;
jobset.x-k8s.io/v1alpha2 of kubernetes-sigs/jobset at 08dfbdfd6827; kueue.x-k8s.io/v1beta1 and v1beta2 of
kubernetes-sigs/kueue at ff69552e79ad.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from precision_time.errors import ConfigError, shown
from precision_time.io import read_yaml

Place = tuple[str | int, ...]
"""Keys and numbers of items from the root of an object to one of its fields."""
DEADLINE = "activeDeadlineSeconds"
_MOST_PODS = 10_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class PodGroup:
    """Pods of one template."""

    role: str
    count: int
    template: Mapping[str, Any]
    """With `metadata` and `spec`, as of a pod."""
    deadline: Place | None = None
    """Of these pods alone; None where the job has one limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What a job is made of."""

    groups: tuple[PodGroup, ...]
    entry: str | None = None
    """Command line that the job runs in the place of a container's."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Beside that of the containers."""
    processes_per_pod: int | None = None
    tells_torchrun: bool = False
    """Whether the controller sets PET_NNODES and PET_NPROC_PER_NODE, which torchrun reads."""
    elsewhere: str = ""
    """Why it has no pods of its own, and what to say then; empty where it has some."""
    suspended: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One kind of job."""

    group: str
    versions: tuple[str, ...]
    name: str
    read: Callable[[Mapping[str, Any]], Shape]
    """Shape of an object of this kind."""
    deadline: Place | None
    """Where the limit of the whole job stands; None where groups of pods have their own."""
    launchers: tuple[str, ...] = ()
    """Roles whose command starts the training, where they have no devices of their own."""


def at(value: Any, *place: str, kind: type = dict) -> Any:
    """A field of nested mappings; empty where one is missing or null.

    Raises:
        ConfigError: If something on the way, or the field, is of another type.
    """
    path = ""
    for number, name in enumerate(place, start=1):
        path = f"{path}.{name}" if path else name
        value = value.get(name)
        wanted = kind if number == len(place) else dict
        if value is None:
            return kind()
        if not isinstance(value, wanted) or isinstance(value, bool) is not (wanted is bool):
            raise ConfigError(
                f"{path} is {shown(value)}. The rule: {_NAMES[wanted]}. To fix: correct the manifest."
            )
    return value


_NAMES = {dict: "a mapping", list: "a list", str: "a text", int: "a whole number", bool: "true or false"}


def number(value: Any, name: str, *, usual: int) -> int:
    """A count of pods or processes.

    Raises:
        ConfigError: If it is none.
    """
    if value is None:
        return usual
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_PODS:
        raise ConfigError(
            f"{name} is {shown(value)}. The rule: a whole number of at most {_MOST_PODS:,}. To fix: correct "
            "the manifest."
        )
    return value


def items(value: Any, *place: str) -> Sequence[Mapping[str, Any]]:
    """A list of mappings, such as containers.

    Raises:
        ConfigError: If it is something else.
    """
    found = at(value, *place, kind=list)
    if not all(isinstance(item, dict) for item in found):
        raise ConfigError(f"{'.'.join(place)} holds what is no mapping. To fix: correct the manifest.")
    return list(found)


def kind_of(document: Any) -> Kind | None:
    """The kind of an object; None where it is no job that is read here."""
    if not isinstance(document, Mapping):
        return None
    version, name = document.get("apiVersion"), document.get("kind")
    return _BY_NAME.get((version, name)) if isinstance(version, str) and isinstance(name, str) else None


def kinds_in_words() -> str:
    """All kinds, for messages."""
    return ", ".join(f"{name} ({version})" for version, name in _BY_NAME)


def pods_of_job(spec: Mapping[str, Any]) -> tuple[int, tuple[str, ...]]:
    """Pods of a batch/v1 Job that run together, and notes.

    Raises:
        ConfigError: If they run one after the other.
    """
    parallelism = number(spec.get("parallelism"), "spec.parallelism", usual=1)
    completions = number(spec.get("completions"), "spec.completions", usual=parallelism)
    if completions > parallelism > 0:
        raise ConfigError(
            f"Of the {completions} pods {parallelism} run at a time, so that they do not train one model "
            "together. The rule: completions is at most parallelism. To fix: one Job for each training."
        )
    pods = min(parallelism, completions)
    if pods > 1 and spec.get("completionMode") != "Indexed":
        return pods, (f"{pods} pods are taken to train one model together, though the Job is not Indexed.",)
    return pods, ()


def _job(document: Mapping[str, Any]) -> Shape:
    spec = at(document, "spec")
    pods, notes = pods_of_job(spec)
    group = PodGroup(role="job", count=pods, template=at(spec, "template"))
    return Shape(groups=(group,), suspended=at(spec, "suspend", kind=bool), notes=notes)


def _cron_job(document: Mapping[str, Any]) -> Shape:
    return _job(at(document, "spec", "jobTemplate"))


def _replicas(specs: Mapping[str, Any]) -> tuple[PodGroup, ...]:
    """Groups of a Kubeflow job of version 1: replica specs by role."""
    found = []
    for role in specs:
        spec = at(specs, role)
        count = number(spec.get("replicas"), f"{role}.replicas", usual=1)
        found.append(PodGroup(role=str(role), count=count, template=at(spec, "template")))
    return tuple(found)


def _pytorch_job(document: Mapping[str, Any]) -> Shape:
    spec = at(document, "spec")
    stated = spec.get("nprocPerNode", at(spec, "elasticPolicy").get("nProcPerNode"))
    processes = int(stated) if str(stated).isdecimal() and len(str(stated)) < 8 else None  # noqa: PLR2004
    elastic = "The job is elastic: it is answered for the replicas that are stated."
    return Shape(
        groups=_replicas(at(spec, "pytorchReplicaSpecs")),
        processes_per_pod=processes,
        tells_torchrun=True,
        suspended=at(spec, "runPolicy", "suspend", kind=bool),
        notes=(elastic,) if spec.get("elasticPolicy") else (),
    )


def _mpi_job(document: Mapping[str, Any]) -> Shape:
    spec = at(document, "spec")
    slots = spec.get("slotsPerWorker")
    return Shape(
        groups=_replicas(at(spec, "mpiReplicaSpecs")),
        processes_per_pod=None if slots is None else number(slots, "spec.slotsPerWorker", usual=1),
        suspended=at(spec, "runPolicy", "suspend", kind=bool),
    )


def _train_job(document: Mapping[str, Any]) -> Shape:
    spec = at(document, "spec")
    trainer = at(spec, "trainer")
    container = {name: trainer[name] for name in ("command", "args", "env") if name in trainer}
    container |= {"name": "node", "resources": at(trainer, "resourcesPerNode")}
    pod: dict[str, Any] = {"containers": [container]}
    for patch in _patches(spec):
        pod |= {name: patch[name] for name in ("nodeSelector", "affinity") if patch.get(name)}
    notes = []
    if trainer.get("numNodes") is None:
        notes.append("numNodes is not given: 1, as the runtimes that Kubeflow ships have it.")
    stated = trainer.get("numProcPerNode")
    processes = stated if isinstance(stated, int) and not isinstance(stated, bool) else None
    if not container["resources"]:
        name = at(spec, "runtimeRef").get("name")
        notes.append(f"resourcesPerNode is not given, and what the runtime {shown(name)} says is not read.")
        if processes:
            notes.append(f"The {processes} processes of a node are taken to have a GPU each.")
            container["resources"] = {"limits": {"nvidia.com/gpu": processes}}
    group = PodGroup(
        role="node",
        count=number(trainer.get("numNodes"), "spec.trainer.numNodes", usual=1),
        template={"spec": pod},
    )
    return Shape(
        groups=(group,),
        processes_per_pod=processes,
        tells_torchrun=True,
        suspended=at(spec, "suspend", kind=bool),
        notes=tuple(notes),
    )


def _patches(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Pod specs by which a TrainJob changes its runtime: `runtimePatches`, once `podTemplateOverrides`."""
    found = [at(each, "spec") for each in items(spec, "podTemplateOverrides")]
    for patch in items(spec, "runtimePatches"):
        for job in items(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs"):
            found.append(at(job, "template", "spec", "template", "spec"))
    return found


def _ray_job(document: Mapping[str, Any]) -> Shape:
    spec = at(document, "spec")
    if spec.get("clusterSelector"):
        return Shape(
            groups=(),
            entry=at(spec, "entrypoint", kind=str) or None,
            environment=_runtime_environment(at(spec, "runtimeEnvYAML", kind=str)),
            elsewhere="The RayJob runs on a cluster that is there already, whose devices the manifest does "
            "not say. To fix: say them in the annotation precision-time.dev/job (device, gpus).",
        )
    cluster, notes = at(spec, "rayClusterSpec"), []
    groups = [PodGroup(role="head", count=1, template=at(cluster, "headGroupSpec", "template"))]
    for worker in items(cluster, "workerGroupSpecs"):
        least = number(worker.get("minReplicas"), "minReplicas", usual=0)
        count = number(worker.get("replicas"), "replicas", usual=least)
        hosts = number(worker.get("numOfHosts"), "numOfHosts", usual=1)
        name = str(worker.get("groupName", "worker"))
        if at(cluster, "enableInTreeAutoscaling", kind=bool) and worker.get("maxReplicas") not in (
            None,
            count,
        ):
            notes.append(f"The group {shown(name)} grows and shrinks: it is answered for {count} replicas.")
        groups.append(PodGroup(role=name, count=count * hosts, template=at(worker, "template")))
    return Shape(
        groups=tuple(groups),
        entry=at(spec, "entrypoint", kind=str) or None,
        environment=_runtime_environment(at(spec, "runtimeEnvYAML", kind=str)),
        suspended=at(spec, "suspend", kind=bool),
        notes=tuple(notes),
    )


def _runtime_environment(text: str) -> dict[str, str]:
    """Variables of a Ray runtime environment."""
    try:
        found = at({"env": read_yaml(text)}, "env", "env_vars")
    except (ValueError, RecursionError):
        return {}
    return {str(name): str(value) for name, value in found.items()}


def _job_set(document: Mapping[str, Any]) -> Shape:
    spec, groups = at(document, "spec"), []
    notes: list[str] = []
    for place, job in enumerate(items(spec, "replicatedJobs")):
        own = at(job, "template", "spec")
        pods, said = pods_of_job(own)
        notes += said
        groups.append(
            PodGroup(
                role=str(job.get("name", "")),
                count=pods * number(job.get("replicas"), "replicas", usual=1),
                template=at(own, "template"),
                deadline=("spec", "replicatedJobs", place, "template", "spec", DEADLINE),
            )
        )
    return Shape(
        groups=tuple(groups), suspended=at(spec, "suspend", kind=bool), notes=tuple(dict.fromkeys(notes))
    )


def _workload(document: Mapping[str, Any]) -> Shape:
    groups = [
        PodGroup(
            role=str(each.get("name", "")),
            count=number(each.get("count"), "count", usual=1),
            template=at(each, "template"),
        )
        for each in items(document, "spec", "podSets")
    ]
    return Shape(groups=tuple(groups))


_RUN_POLICY: Place = ("spec", "runPolicy", DEADLINE)
KINDS: tuple[Kind, ...] = (
    Kind(group="batch", versions=("v1",), name="Job", read=_job, deadline=("spec", DEADLINE)),
    Kind(
        group="batch",
        versions=("v1",),
        name="CronJob",
        read=_cron_job,
        deadline=("spec", "jobTemplate", "spec", DEADLINE),
    ),
    Kind(group="kubeflow.org", versions=("v1",), name="PyTorchJob", read=_pytorch_job, deadline=_RUN_POLICY),
    Kind(
        group="kubeflow.org",
        versions=("v1", "v2beta1"),
        name="MPIJob",
        read=_mpi_job,
        deadline=_RUN_POLICY,
        launchers=("Launcher",),
    ),
    Kind(
        group="trainer.kubeflow.org",
        versions=("v1alpha1",),
        name="TrainJob",
        read=_train_job,
        deadline=("spec", DEADLINE),
    ),
    Kind(
        group="ray.io",
        versions=("v1",),
        name="RayJob",
        read=_ray_job,
        deadline=("spec", DEADLINE),
    ),
    Kind(group="jobset.x-k8s.io", versions=("v1alpha2",), name="JobSet", read=_job_set, deadline=None),
    Kind(
        group="kueue.x-k8s.io",
        versions=("v1beta1", "v1beta2"),
        name="Workload",
        read=_workload,
        deadline=("spec", "maximumExecutionTimeSeconds"),
    ),
)
_BY_NAME = {(f"{kind.group}/{version}", kind.name): kind for kind in KINDS for version in kind.versions}
