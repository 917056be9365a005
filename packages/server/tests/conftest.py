"""A service to ask, in this process."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from precision_time_server.app import create_app
from precision_time_server.settings import Settings


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Asks one service with the default limits and a store of its own; errors of ours are raised."""
    folder: Path = tmp_path_factory.mktemp("service")
    with TestClient(create_app(Settings.of({"store": f"sqlite:///{folder / 'service.sqlite'}"}))) as found:
        yield found


class PostgresServer:
    """A PostgreSQL of its own: empty, on a free port of the loopback, with a password, gone afterwards."""

    user, password = "tester", "pass@word/of:tester"

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="precision-time-postgres-"))
        self._as: dict = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root.
            names = {each.pw_name for each in pwd.getpwall()}
            account = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
            self._as = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
            os.chown(self._folder, account.pw_uid, account.pw_gid)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        secret = self._folder / "password"
        secret.write_text(self.password, encoding="utf-8")
        secret.chmod(0o644)
        subprocess.run(
            [programs / "initdb", "-D", self._folder / "data", "-U", self.user, "--pwfile", secret,
             "--no-sync", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"],
            check=True, capture_output=True, cwd="/", **self._as,
        )  # fmt: skip
        self._process: subprocess.Popen | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        # Without fsync a power cut would lose rows; no test cuts the power.
        settings = [
            "fsync=off",
            "shared_buffers=16MB",
            "unix_socket_directories=",
            "listen_addresses=127.0.0.1",
        ]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._folder / "data", "-p", str(self.port),
                 *(part for setting in settings for part in ("-c", setting))],
                stdout=log, stderr=log, cwd="/", **self._as,
            )  # fmt: skip
        for _ in range(1200):
            if self._process.poll() is None and self._answers():
                return
            time.sleep(0.05)
        raise RuntimeError((self._folder / "log").read_text(encoding="utf-8", errors="replace"))

    def _answers(self) -> bool:
        asked = [self._programs / "pg_isready", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(asked, check=False, capture_output=True).returncode == 0

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it; connections break."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=30)
            self._process = None

    def url(self, database: str) -> str:
        """The URL of a database, password included."""
        password = urllib.parse.quote(self.password, safe="")
        return f"postgresql+psycopg://{self.user}:{password}@127.0.0.1:{self.port}/{database}"

    def run(self, statement: str, database: str = "postgres") -> None:
        """Run one statement outside of a transaction."""
        import psycopg

        where = {"host": "127.0.0.1", "port": self.port, "dbname": database}
        with psycopg.connect(user=self.user, password=self.password, autocommit=True, **where) as connection:
            connection.execute(statement)

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"test_{uuid.uuid4().hex}"
        self.run(f"CREATE DATABASE {name}")
        return self.url(name)

    def close(self) -> None:
        """Stop it and delete its files."""
        self.stop(signal.SIGQUIT)  # at once: nothing of it is needed any more
        shutil.rmtree(self._folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A real PostgreSQL server."""
    found = shutil.which("initdb") or max(glob.glob("/usr/lib/postgresql/*/bin/initdb"), default=None)
    if found is None:
        pytest.skip("PostgreSQL is not installed (initdb, postgres)")
    server = PostgresServer(Path(found).resolve().parent)
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    """The URL of an empty database that the tests of a session share."""
    return postgres_server.new_database()


@pytest.fixture
def long_plan() -> dict[str, Any]:
    """A plan that takes more than a minute of the processor."""
    return {
        "model": "deepseek-v3",
        "tokens": "1T",
        "devices": ["H100", "H200", "A100", "B200", "H800"],
        "gpus": "1024..1984:64",
        "layouts": 8,
        "precision": ["bf16-mixed", "fp8-mixed"],
    }
