"""A service to ask, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from precision_time.server.app import create_app
from precision_time.server.settings import Settings


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Asks one service with the default limits and a store of its own; errors of ours are raised."""
    folder: Path = tmp_path_factory.mktemp("service")
    with TestClient(create_app(Settings.of({"store": f"sqlite:///{folder / 'service.sqlite'}"}))) as found:
        yield found
