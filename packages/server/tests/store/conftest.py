"""An empty database of each kind."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["file", "memory", "postgres"])
def store_url(request, tmp_path):
    """The URL of a store that does not exist yet."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_server").new_database()
    return "sqlite://" if request.param == "memory" else f"sqlite:///{tmp_path / 'new' / 'store.sqlite'}"


@pytest.fixture(params=["file", "postgres"])
def shared_url(request, tmp_path):
    """The URL of a store that several processes can open."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_server").new_database()
    return f"sqlite:///{tmp_path / 'store.sqlite'}"
