"""Ray as an `Executor`: started on this machine alone, or a cluster by its address.

Ray is an optional extra: it is imported when a session is opened, never before.
"""

from __future__ import annotations

import logging
import os
import signal
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

from ..errors import ConfigError, PrecisionTimeError, import_failure
from ..executor import Executor, usable_cores

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

LOCAL = "local"
"""In the place of an address: a Ray that this process starts and ends."""
LOOPBACK = "127.0.0.1"
_NO_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Environment variable by which Ray keeps to the loopback interface where it is "0"."""
OBJECT_STORE_BYTES = 256 * 2**20
"""Of a local Ray: a bounded number of chunks is in flight, and each is small."""
_IN_FLIGHT_PER_CPU = 2
"""One that runs and one that waits for its turn."""
_RETRIES = 3
"""How often a chunk is computed again whose worker was lost."""
_QUIET: Mapping[str, str] = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
}
"""No statistics sent, and devices stay visible to tasks that ask for none."""


def import_ray(purpose: str = "run work on a cluster") -> Any:
    """Ray, set to send no statistics.

    Raises:
        MissingExtraError: If it is not installed.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise import_failure(error, name="ray", package="ray", extra="ray", purpose=purpose) from error
    return ray


@contextmanager
def ray_session(address: str | None = None, *, num_cpus: int | None = None) -> Iterator[Any]:
    """Ray, connected; one that is connected already is used and left as it is.

    Args:
        address: Of a running cluster (`host:port`, `auto`, `ray://host:port`); "local" or None: a Ray on this
            machine that starts now and stops with the block, reachable from this machine alone.
        num_cpus: CPUs that a local Ray offers; None: the cores of this process.

    Yields:
        The module.

    Raises:
        MissingExtraError: If Ray is not installed.
        ConfigError: If nothing answers at the address.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address in (None, LOCAL):
        options |= {
            "address": LOCAL,
            "num_cpus": num_cpus or usable_cores(),
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
            "_node_ip_address": LOOPBACK,
        }
    else:
        options["address"] = address
    try:
        with _quiet(ray), loopback(ray) if address in (None, LOCAL) else nullcontext():
            ray.init(**options)
    except Exception as error:  # a node that starts too slowly is a plain one
        raise _not_connected(address or LOCAL, error) from error
    agents = _agents_of(ray) if address in (None, LOCAL) else ()
    try:
        yield ray
    finally:
        ray.shutdown()
        for process in agents:
            with suppress(OSError):
                os.kill(process, signal.SIGTERM)


def _agents_of(ray: Any) -> tuple[int, ...]:
    """What the raylet of a local Ray started.

    Ray gives it one second to end them; a busy machine needs more, and they would go on for another minute.
    """
    try:
        [raylet] = ray._private.worker._global_node.all_processes["raylet"]
        pid = raylet.process.pid
        return tuple(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()))
    except (AttributeError, KeyError, ValueError, OSError):
        return ()


def _not_connected(address: str, error: BaseException) -> ConfigError:
    """Why there is no session: nothing is there, or it does not let this process in."""
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    if any(type(each).__name__ == "AuthenticationError" for each in causes):
        return ConfigError(
            f"The Ray at {address!r} asks for an authentication token that this process lacks. To fix: "
            "set RAY_AUTH_MODE and the token as the owner of the cluster says (Ray: token authentication)."
        )
    return ConfigError(
        f"No Ray answers at {address!r}: {error}. To fix: start one with `ray start --head` and give its "
        f"address, or {LOCAL!r} to start one on this machine."
    )


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Whether a Ray that is connected inside the block prints nothing.

    Whatever `log_to_driver` says, a thread prints on stdout what the raylets report, such as workers that
    were lost. Those are replaced, and where they cannot be, the error says so.
    """
    module, name = ray._private.worker, "listen_error_messages"
    listen = getattr(module, name, None)
    setattr(module, name, _say_nothing)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        setattr(module, name, listen)


def _say_nothing(*_: Any) -> None:
    """In the place of a thread that prints."""


@contextmanager
def loopback(ray: Any) -> Iterator[None]:
    """Whether what Ray starts inside the block is reached from this machine alone.

    Ray replaces 127.0.0.1 by the machine's address in the network, except on systems where it knows no
    clusters. It reads which these are when it is imported, and its processes when they start.
    """
    constants = ray._private.ray_constants
    before, variable = constants.ENABLE_RAY_CLUSTER, os.environ.get(_NO_CLUSTERS)
    constants.ENABLE_RAY_CLUSTER = False
    os.environ[_NO_CLUSTERS] = "0"
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        if variable is None:
            del os.environ[_NO_CLUSTERS]
        else:
            os.environ[_NO_CLUSTERS] = variable


@contextmanager
def ray_map(address: str | None = None, *, num_cpus: int | None = None) -> Iterator[Executor]:
    """An `Executor` over the tasks of a Ray cluster; the answers are those of the plain `map`, in its order.

    Chunks are taken from their iterator only as answers are taken: no more than twice the CPUs of the cluster
    are handed out and unanswered at a time, however many there are. A task whose worker or node is lost runs
    again elsewhere. An error that the function raises is raised here as it is.

    Args:
        address: As for `ray_session`.
        num_cpus: CPUs that a local Ray offers.

    Raises:
        ConfigError: If nothing answers at the address.
    """
    with ray_session(address, num_cpus=num_cpus) as ray:
        cpus = int(ray.cluster_resources().get("CPU", 1))
        window = _IN_FLIGHT_PER_CPU * max(cpus, 1)
        task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_call)

        def run(function: Callable[[_Item], _Answer], chunks: Iterable[_Item], /) -> Iterable[_Answer]:
            return _streamed(ray, task, function, chunks, window)

        yield run


def _call(function: Callable[[_Item], _Answer], chunk: _Item) -> _Answer:
    return function(chunk)


def _streamed(
    ray: Any, task: Any, function: Callable[[Any], _Answer], chunks: Iterable[Any], window: int
) -> Iterator[_Answer]:
    shared = ray.put(function)
    running: deque[Any] = deque()
    try:
        for chunk in chunks:
            if len(running) == window:
                yield _answer(ray, running.popleft())
            running.append(task.remote(shared, chunk))
        while running:
            yield _answer(ray, running.popleft())
    finally:
        for reference in running:
            ray.cancel(reference)


def _answer(ray: Any, reference: Any) -> Any:
    """The answer of a task; what the function raised is raised without Ray's wrapping."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from None
        raise
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
        raise PrecisionTimeError(
            f"Every worker that computed one chunk was lost: {error}. To fix: give the workers more "
            "memory, or let fewer run at a time."
        ) from error
