"""A service over HTTPS, and where its binaries are, a real API server of Kubernetes."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

ASSETS = "KUBEBUILDER_ASSETS"
"""Folder with etcd and kube-apiserver."""


def openssl(*words: Any) -> None:
    """Run openssl, which has nothing to say."""
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def make_pair(folder: Path, name: str = "tls") -> tuple[Path, Path]:
    """A certificate of localhost, which is its own authority, and its key: as the guide makes them."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
        "-subj", "/CN=precision-time", "-addext", "subjectAltName=DNS:localhost",
        "-keyout", key, "-out", certificate,
    )  # fmt: skip
    return certificate, key


class Served:
    """A `precision-time serve` of its own, with a certificate for localhost."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate, self.key = make_pair(folder)
        self.authority = self.certificate
        environment = {**os.environ, "PRECISION_TIME_HOME": str(folder / "home")}
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "precision_time", "serve", "--port", "0", "--json",
                 "--tls-cert", self.certificate, "--tls-key", self.key],
                stdout=subprocess.PIPE, stderr=log, env=environment,
            )  # fmt: skip
        assert self._process.stdout is not None
        text = b""
        while not text.rstrip().endswith(b"}"):
            line = self._process.stdout.readline()
            assert line, (folder / "log").read_text(encoding="utf-8")
            text += line
        self.url = json.loads(text)["url"].replace("127.0.0.1", "localhost")
        self.port = int(self.url.rpartition(":")[2])
        wait_for(lambda: ask(f"{self.url}/health/ready", authority=self.authority)[0] == 200)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        assert self._process.stdout is not None
        self._process.stdout.close()


def ask(
    url: str, body: Any = None, *, method: str | None = None, authority: Path | None = None, **headers: str
) -> tuple[int, Any]:
    """Status and JSON of an answer; over HTTPS with the authority's certificate as the only one trusted."""
    context = None
    if url.startswith("https"):
        context = ssl.create_default_context(cafile=str(authority) if authority else None)
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data=data, method=method, headers={"Content-Type": "application/json", **headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return answer.status, _value(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _value(error.read())


def _value(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")


def wait_for(check: Any, *, within_s: float = 60.0) -> None:
    end_s = time.monotonic() + within_s
    while True:
        try:
            if check():
                return
        except OSError:
            pass
        assert time.monotonic() < end_s, "not there in time"
        time.sleep(0.1)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service over HTTPS."""
    found = Served(tmp_path_factory.mktemp("served"))
    yield found
    found.close()


class ApiServer:
    """etcd and kube-apiserver on free ports of the loopback, with an administrator's token."""

    def __init__(self, folder: Path, programs: Path, stack: ExitStack) -> None:
        from precision_time_server.cli.serve import _free_port

        self._folder, self._programs, self._stack = folder, programs, stack
        self._authority, _ = make_pair(folder)
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", folder / "accounts.key")
        (folder / "tokens.csv").write_text('secret,admin,admin,"system:masters"\n', encoding="utf-8")
        client, peer, self.port = (_free_port("127.0.0.1") for _ in range(3))
        self._start(
            "etcd", "--data-dir", folder / "etcd",
            "--listen-client-urls", f"http://127.0.0.1:{client}",
            "--advertise-client-urls", f"http://127.0.0.1:{client}",
            "--listen-peer-urls", f"http://127.0.0.1:{peer}",
            "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
            "--initial-cluster", f"default=http://127.0.0.1:{peer}",
        )  # fmt: skip
        self._start(
            "kube-apiserver", "--etcd-servers", f"http://127.0.0.1:{client}",
            "--bind-address", "127.0.0.1", "--secure-port", str(self.port),
            "--tls-cert-file", folder / "tls.crt", "--tls-private-key-file", folder / "tls.key",
            "--cert-dir", folder / "certs",
            "--service-account-key-file", folder / "accounts.key",
            "--service-account-signing-key-file", folder / "accounts.key",
            "--service-account-issuer", "https://kubernetes.default.svc",
            "--token-auth-file", folder / "tokens.csv", "--authorization-mode", "RBAC",
            "--service-cluster-ip-range", "10.0.0.0/24", "--disable-admission-plugins", "ServiceAccount",
        )  # fmt: skip
        wait_for(lambda: self.call("GET", "/readyz")[0] == 200)
        wait_for(lambda: self.call("GET", "/api/v1/namespaces/default")[0] == 200)

    def _start(self, program: str, *words: Any) -> None:
        log = self._stack.enter_context((self._folder / f"{program}.log").open("wb"))
        process = subprocess.Popen([self._programs / program, *map(str, words)], stdout=log, stderr=log)
        self._stack.callback(process.wait, 20)
        self._stack.callback(process.terminate)

    def kubeconfig(self) -> Path:
        """The file by which kubectl reaches it."""
        cluster = {"server": f"https://localhost:{self.port}", "certificate-authority": str(self._authority)}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "users": [{"name": "admin", "user": {"token": "secret"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "admin"}}],
        }  # fmt: skip
        path = self._folder / "kubeconfig"
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Ask the API server."""
        return ask(
            f"https://localhost:{self.port}{path}",
            body,
            method=method,
            authority=self._authority,
            Authorization="Bearer secret",
        )

    def create(self, path: str, body: Any) -> Any:
        """Create an object; the object as it is stored."""
        status, found = self.call("POST", path, body)
        assert status == 201, found
        return found


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A real API server."""
    programs = Path(os.environ.get(ASSETS, "/usr/local/kubebuilder/bin"))
    for program in ("etcd", "kube-apiserver"):
        if not shutil.which(program, path=str(programs)):
            pytest.skip("no etcd and kube-apiserver in KUBEBUILDER_ASSETS (tools/build_kube_apiserver.sh)")
    with ExitStack() as stack:
        yield ApiServer(tmp_path_factory.mktemp("api"), programs, stack)
