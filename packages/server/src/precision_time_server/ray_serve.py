"""The same application under Ray Serve: replicas on many machines, as many as the calls in progress need."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from precision_time.errors import ConfigError, required_module
from precision_time.executor import usable_cores
from precision_time.ray_executor import LOCAL, import_ray, ray_session

from .settings import Settings

NAME = "precision-time"
"""Of the application in Ray Serve."""
TARGET_CALLS = 16
"""Calls in progress that each replica should have on average: more start another, as far as there may be."""
_LONGER_THAN_S = 10.0
"""How long there must be more calls than that before another is started."""
_GRACE_S = 5.0


def run_on_ray(
    settings: Settings,
    address: str = LOCAL,
    *,
    min_replicas: int = 1,
    max_replicas: int = 4,
    target_calls: int = TARGET_CALLS,
    say: Callable[[str], None] = print,
) -> None:
    """Serve until interrupted or terminated, then take the application and its proxy away.

    Args:
        settings: Of every replica; `host` and `port` are those of Ray Serve's proxies, `workers` is not used.
        address: Of a running Ray, or "local" for one that starts and ends with this call.
        min_replicas: Processes that are always there.
        max_replicas: Most of them.
        target_calls: Calls in progress for each before another is started.
        say: Is told where calls are answered.

    Raises:
        MissingExtraError: If Ray Serve is not installed.
        ConfigError: If nothing answers at the address, or the store is a file that other machines lack.
    """
    stopped = threading.Event()
    with (
        serving(
            settings, address, min_replicas=min_replicas, max_replicas=max_replicas, target_calls=target_calls
        ) as url,
        _signals(stopped),  # after Ray's own: that ends the process before its replicas
    ):
        say(f"Ray Serve answers at {url}")
        stopped.wait()


@contextmanager
def _signals(stopped: threading.Event) -> Iterator[None]:
    """Whether SIGINT and SIGTERM set an event instead of ending this process."""
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def serving(
    settings: Settings,
    address: str = LOCAL,
    *,
    min_replicas: int = 1,
    max_replicas: int = 4,
    target_calls: int = TARGET_CALLS,
) -> Iterator[str]:
    """The application under Ray Serve while the block runs; see `run_on_ray`.

    Yields:
        Where its proxy listens.
    """
    _check(settings, address, min_replicas, max_replicas, target_calls)
    import_ray("serve on many machines")
    serve: Any = required_module(
        "ray.serve",
        package="ray[serve]",
        extra="precision-time-server[ray-serve]",
        purpose="serve on many machines",
    )
    port = settings.port or _free_port(settings.host)
    cpus = max(usable_cores(), max_replicas)
    with ray_session(address, num_cpus=cpus if address == LOCAL else None):
        serve.start(
            proxy_location="HeadOnly" if address == LOCAL else "EveryNode",
            http_options={
                "host": settings.host,
                "port": port,
                "request_timeout_s": settings.time_limit_s + _GRACE_S,
            },
        )
        try:
            serve.run(
                application(settings, min_replicas, max_replicas, target_calls),
                name=NAME,
                route_prefix="/",
                blocking=False,
            )
            yield f"http://{settings.host}:{port}"
        finally:
            serve.delete(NAME)
            if address == LOCAL:
                serve.shutdown()  # elsewhere the proxy serves others, too


def application(settings: Settings, min_replicas: int, max_replicas: int, target_calls: int) -> Any:
    """The application of Ray Serve: each replica builds the app of `create_app` for itself."""
    from ray import serve

    def build() -> Any:
        from precision_time_server.app import create_app

        return create_app(settings)

    return serve.deployment(
        serve.ingress(build)(),
        name="service",
        max_ongoing_requests=settings.max_waiting,
        autoscaling_config={
            "min_replicas": min_replicas,
            "initial_replicas": min_replicas,
            "max_replicas": max_replicas,
            "target_ongoing_requests": target_calls,
            "upscale_delay_s": _LONGER_THAN_S,
        },
        ray_actor_options={"num_cpus": 1},
        graceful_shutdown_timeout_s=_GRACE_S,
    ).bind()


def _check(settings: Settings, address: str, min_replicas: int, max_replicas: int, target_calls: int) -> None:
    if not 1 <= min_replicas <= max_replicas or target_calls < 1:
        raise ConfigError(
            f"min_replicas={min_replicas}, max_replicas={max_replicas}, target_calls={target_calls}. The "
            "rule: 1 <= min_replicas <= max_replicas, and 1 call or more for each. To fix: correct them."
        )
    url = settings.store.get_secret_value()
    if not url.startswith("sqlite"):
        return
    if ":memory:" in url or url in ("sqlite://", "sqlite:///"):
        raise ConfigError(
            "The store is in memory, of which every replica would have its own. To fix: --store with a file "
            "or PostgreSQL."
        )
    if address != LOCAL:
        raise ConfigError(
            "The store is a file, which replicas on other machines do not have. The rule: all replicas share "
            "one store. To fix: --store postgresql+psycopg://USER@HOST/DATABASE."
        )


def _free_port(host: str) -> int:
    """A port that was free a moment ago: Ray Serve's proxy takes no 0."""
    with socket.create_server((host, 0)) as found:
        return int(found.getsockname()[1])
