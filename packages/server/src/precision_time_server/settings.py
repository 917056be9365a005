"""What an operator sets of the service."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from precision_time.errors import ConfigError, validation_problems
from precision_time.io import data_folder

from .store.quotas import Quotas

MIB = 2**20
SETTINGS_VARIABLE = "_PRECISION_TIME_SERVER_SETTINGS"
"""Hands the settings to the worker processes."""
TOKENS_VARIABLE = "PRECISION_TIME_TOKENS"
"""Tokens that are accepted, separated by commas: the environment is not seen by other users."""


def _many(given: Any) -> Any:
    """A text stands for its parts between commas."""
    return (
        tuple(part.strip() for part in given.split(",") if part.strip()) if isinstance(given, str) else given
    )


class Settings(BaseModel):
    """Addresses, tokens and limits of one service; every worker process has the same."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    """Interface to listen on: the loopback, unless the operator says otherwise."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8400
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    """Processes that answer."""
    store: SecretStr = Field(
        default_factory=lambda: SecretStr(f"sqlite:///{data_folder() / 'service.sqlite'}")
    )
    """SQLAlchemy URL; it may hold a password."""
    tokens: Annotated[tuple[SecretStr, ...], BeforeValidator(_many)] = ()
    """Bearer tokens of which a request must bring one; without any everyone may ask."""
    cors_origins: Annotated[tuple[str, ...], BeforeValidator(_many)] = ()
    """Other origins whose pages may ask."""
    allowed_hosts: Annotated[tuple[str, ...], BeforeValidator(_many)] = ()
    """Names under which callers reach it beside `host`, the loopback and its own address: a `Host` that is
    another one is of a page whose name was bound to this address (DNS rebinding)."""
    max_body_bytes: Annotated[int, Field(ge=1024)] = MIB
    max_upload_bytes: Annotated[int, Field(ge=1024)] = 256 * MIB
    """Of a model or a table that is uploaded."""
    max_jobs: Annotated[int, Field(ge=1)] = 1000
    """Of one call."""
    time_limit_s: Annotated[float, Field(gt=0.0)] = 60.0
    """Of one call."""
    max_rows: Annotated[int, Field(ge=1)] = 200_000
    """Measurements in the store, of all clusters."""
    max_clusters: Annotated[int, Field(ge=1)] = 1000
    max_models: Annotated[int, Field(ge=1)] = 1000
    max_store_bytes: Annotated[int, Field(ge=MIB)] = 4096 * MIB
    """Of the store on the disk."""
    max_waiting: Annotated[int, Field(ge=1)] = 128
    """Calls in progress in a worker, from their complete body on: further ones are told to come again."""
    max_connections: Annotated[int, Field(ge=8)] = 512
    """Of a worker, also those that say nothing: further callers are told to come again (503)."""
    processes: Annotated[int, Field(ge=1, le=64)] = 1
    """For each worker: processes for long work (plans, layouts, fits)."""
    train_predictddl: bool = False
    """Whether a request may train a PredictDDL predictor that is missing."""
    tls_cert: Path | None = None
    """Certificate in PEM, with those of its issuers; None for plain HTTP."""
    tls_key: Path | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Settings from names and values; None stands for not given.

        Raises:
            ConfigError: If a value breaks its rule.
        """
        stated = {name: value for name, value in given.items() if value is not None}
        if "tokens" not in stated and os.environ.get(TOKENS_VARIABLE):
            stated["tokens"] = os.environ[TOKENS_VARIABLE]
        try:
            return cls.model_validate(stated)
        except ValidationError as error:
            raise ConfigError(
                f"The service cannot be set up so: {validation_problems(error)}. To fix: correct the value."
            ) from None

    @model_validator(mode="after")
    def _one_store(self) -> Self:
        """Workers share what they keep."""
        if self.workers > 1 and self.store.get_secret_value() in ("sqlite://", "sqlite:///:memory:"):
            raise ValueError("a store in memory is one worker's own: name a file or a server")
        return self

    @model_validator(mode="after")
    def _whole_pair(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("a certificate and its key go together: give both of --tls-cert and --tls-key")
        return self

    @property
    def quotas(self) -> Quotas:
        """The most that the store holds."""
        return Quotas(
            rows=self.max_rows,
            clusters=self.max_clusters,
            models=self.max_models,
            size_bytes=self.max_store_bytes,
        )

    @property
    def url(self) -> str:
        """Where the service is reached."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls_cert is None else 'https'}://{host}:{self.port}"

    def to_environment(self) -> str:
        """The settings for worker processes, tokens and password among them."""
        plain = self.model_dump(mode="json") | {
            "store": self.store.get_secret_value(),
            "tokens": [token.get_secret_value() for token in self.tokens],
        }
        return json.dumps(plain)

    @classmethod
    def from_environment(cls) -> Self:
        """What `to_environment` wrote; the defaults where nothing is set."""
        return cls.of(json.loads(os.environ.get(SETTINGS_VARIABLE, "{}")))
