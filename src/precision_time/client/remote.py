"""Questions that go to a service: `precision-time --server URL predict ...`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..cache import memo
from ..errors import CaptureError, ConfigError, PrecisionTimeError, UnknownNameError
from ..forks import cached_property
from ..records import dataclass

if TYPE_CHECKING:
    from ..planning.decision.result import Plan
    from ..planning.layouts.result import LayoutSearch
    from ..planning.run.prediction import RunPrediction
    from ..planning.run.schema import RunOptions
    from ..predict.changes import Alternative
    from ..predict.prediction import Prediction
    from ..predict.predictions import Predictions
    from ..request.request import Request
    from ..workload.graph import OpGraph
    from .client import Client

ASKED_OF_SERVERS = ("predict", "plan", "layout", "slurm")
"""Commands whose question can go to a service."""
SERVER_VARIABLE = "PRECISION_TIME_SERVER"
_MODELS = ("model", "reference", "teacher")
_OF_CAPTURE = ("example_inputs", "inputs", "forward", "loss", "trust")
"""Fields of a job that say how its model is captured."""
_HERE = "The rule: what a service answers holds no operators, and these are drawn or written of them"


@dataclass(frozen=True, kw_only=True)
class Server:
    """A service that answers in the place of this process."""

    url: str
    say: Callable[[str], None]
    """Is told what a user should know."""
    cluster: str | None = None
    """Stored there; its defaults, anchors and calibration are used."""
    retries: int = 3
    timeout_s: float | None = None
    """Of an answer; None for the client's own."""

    @cached_property
    def client(self) -> Client:
        """The connection; says what a user should know."""
        from .client import TIMEOUT_S, Client

        timeout_s = TIMEOUT_S if self.timeout_s is None else self.timeout_s
        return Client(
            self.url,
            retries=self.retries,
            timeout_s=timeout_s,
            say=lambda text: self.say(f"Warning: {text}"),
        )

    def close(self) -> None:
        """Close the connections, if any were made."""
        if "client" in vars(self):
            self.client.close()

    def answers_to(self, requests: Sequence[Request]) -> Predictions:
        """`answers_to`, there."""
        from ..predict.api import FEW
        from ..predict.prediction import Skipped
        from ..predict.predictions import Predictions

        jobs, many = [self._job(request) for request in requests], len(requests) > FEW
        answers = zip(self.client.predict_each(jobs), requests, jobs, strict=True)
        return Predictions.of(
            Skipped.of(request, answer)
            if isinstance(answer, PrecisionTimeError)
            else replace(
                answer,
                request=request.to_dict(),
                # Among many, none says what to ask for instead.
                diagnostics=(answer if many or answer.fits else self.client.predict(job)).diagnostics,
            )
            for answer, request, job in answers
        )

    def what_matters(self, answer: Prediction, request: Request) -> tuple[Alternative, ...]:
        """`what_matters`, there."""
        assumed = any(item.code == "default-batch" for item in answer.diagnostics)
        return self.client.why(self._job(request), batch_assumed=assumed).matters

    def run_of(
        self, request: Request, options: RunOptions, phases: Sequence[Mapping[str, Any]] | None
    ) -> RunPrediction:
        """`planning.run.api.run_of`, there."""
        stated = options.given()
        found = self.client.predict_run(self._job(request), phases=phases, **stated)
        return replace(found, request=request.to_dict())

    def plan(self, model: Any, **arguments: Any) -> Plan:
        """`plan`, there."""
        stated = {name: value for name, value in arguments.items() if value is not None}
        return self.client.plan(**self._sent({"model": model, **stated}))

    def find_layouts(self, request: Request, *, fix: Sequence[str], top: int) -> LayoutSearch:
        """`find_layouts`, there."""
        return self.client.find_layouts(self._job(request), fix=fix, top=top)

    def _job(self, request: Request) -> dict[str, Any]:
        """The fields of a request as the service can have them."""
        fields = request.to_dict()
        return self._sent({**fields, **{name: getattr(request, name) for name in _MODELS if name in fields}})

    def _sent(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a job, with graphs that are captured here for files and code."""
        from ..workload.hf_config import is_config_source, read_config
        from .operations import capture

        found = {**fields, **({} if self.cluster is None else {"cluster": self.cluster})}
        given = {
            name: found[name] for name in (*_OF_CAPTURE, "seq_len", "image_size", "sizes") if name in found
        }
        for name in _MODELS:
            model = found.get(name)
            if model is None or _is_known(model):
                found |= {name: dict(read_config(model))} if is_config_source(model) else {}
                continue
            found[name] = _uploaded(self, capture(model, given))
            for of_capture in (*_OF_CAPTURE, "sizes"):
                found.pop(of_capture, None)
        return found


@memo(64)
def _uploaded(server: Server, graph: OpGraph) -> str:
    """The name of a graph on a service; it is sent once."""
    return server.client.upload_model(graph).name


def _is_known(model: Any) -> bool:
    """Whether a service can have a model by its name or its configuration."""
    from ..workload.hf_config import is_config_source
    from ..workload.resolve import check_named_in_data, load_workload

    if is_config_source(model):
        try:
            load_workload(model)
        except (UnknownNameError, CaptureError):
            return False
        return True
    try:
        check_named_in_data(model)
    except ConfigError:
        return False
    return True


_chosen: Server | None = None


def choose(
    url: str | None,
    *,
    cluster: str | None,
    timeout_s: float | None,
    command: str | None,
    by_option: bool,
    say: Callable[[str], None],
) -> Server | None:
    """Let the commands of this call ask a service; None: answer here.

    Args:
        url: Of the service.
        cluster: Stored there.
        timeout_s: Longest answer of it.
        command: The one that is called.
        by_option: Whether the address was typed, rather than taken from the environment.
        say: Is told what a user should know.

    Returns:
        What is to be closed after the command.

    Raises:
        ConfigError: If the command answers here only, or a cluster or a time is given without a service.
    """
    global _chosen  # noqa: PLW0603 - what was typed before the command, for the command
    _chosen = None
    if not url:
        if cluster is not None:
            raise ConfigError(
                "--cluster names a cluster of a service. To fix: --server URL, or leave it out."
            )
        if timeout_s is not None:
            raise ConfigError("--server-timeout is of a service. To fix: --server URL, or leave it out.")
        return None
    if command in ASKED_OF_SERVERS:
        _chosen = Server(url=url, say=say, cluster=cluster, timeout_s=timeout_s)
    elif by_option:
        raise ConfigError(
            f"{command} does not go to a server. The rule: {', '.join(ASKED_OF_SERVERS)} do; everything "
            "else is answered here. To fix: leave out --server."
        )
    elif command is not None:
        say(f"{command} is answered here, not by the service of PRECISION_TIME_SERVER.")
    return _chosen


def chosen(**options: Any) -> Server | None:
    """The service that answers this command; None where it is answered here.

    Args:
        options: Options of the command that only an answer given here has.

    Raises:
        ConfigError: If there is a service and one of them was given.
    """
    given = [name for name, value in options.items() if value not in (None, False)]
    if _chosen is not None and given:
        raise ConfigError(
            f"--{given[0].replace('_', '-')} does not go with --server. {_HERE}. To fix: leave out one of "
            "them."
        )
    return _chosen
