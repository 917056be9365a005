"""HTTPS of the service: a real certificate chain, clients that verify it, and those that must not get in."""

from __future__ import annotations

import os
import socket
import ssl
import time
import urllib.error
from pathlib import Path

import pytest

from precision_time.errors import ConfigError, ServerError
from precision_time_server.settings import Settings

from .conftest import Served, ask, make_pair, openssl


def test_a_client_that_verifies_the_authority_is_answered(served: Served) -> None:
    status, found = ask(f"{served.url}/v1/predictions", {"model": "resnet50"}, authority=served.authority)
    assert status == 200
    assert found["step_time_s"] > 0


def test_wrong_names_and_unknown_authorities_are_refused(served: Served) -> None:
    cases = (
        (f"https://127.0.0.1:{served.port}/health/live", served.authority, "IP address mismatch"),
        (f"{served.url}/health/live", None, "self-signed certificate"),
    )
    for url, authority, words in cases:
        with pytest.raises(urllib.error.URLError) as refused:
            ask(url, authority=authority)
        assert isinstance(refused.value.reason, ssl.SSLCertVerificationError)
        assert words in str(refused.value.reason)


def test_plain_http_is_told_of_https(served: Served) -> None:
    from precision_time.client import client

    with (
        client.Client(f"http://localhost:{served.port}", retries=0) as asked,
        pytest.raises(ServerError, match=f"https://localhost:{served.port}"),
    ):
        asked.health()


def test_old_versions_of_tls_are_refused(served: Served) -> None:
    context = ssl.create_default_context(cafile=str(served.authority))
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with (
        socket.create_connection(("localhost", served.port), timeout=10) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(plain, server_hostname="localhost")


def test_files_that_cannot_be_served_are_refused_before_the_start(tmp_path: Path) -> None:
    from precision_time_server.cli.serve import _check_certificate

    certificate, key = make_pair(tmp_path)
    _check_certificate(certificate, key)
    _, other = make_pair(tmp_path, "other")
    encrypted = tmp_path / "encrypted.key"
    openssl("pkcs8", "-topk8", "-in", key, "-out", encrypted, "-passout", "pass:secret")
    empty = tmp_path / "empty.crt"
    empty.touch()
    for wrong in (
        (certificate, other),
        (certificate, encrypted),
        (certificate, tmp_path / "none.key"),
        (empty, key),
        (key, certificate),
    ):
        with pytest.raises(ConfigError, match="To fix"):
            _check_certificate(*wrong)
    with pytest.raises(ConfigError, match="--tls-cert and --tls-key"):
        Settings.of({"tls_cert": certificate})


def test_a_renewed_certificate_asks_for_a_restart(tmp_path: Path) -> None:
    from starlette.testclient import TestClient

    from precision_time_server.app import create_app

    certificate, key = make_pair(tmp_path)
    settings = Settings.of({"store": "sqlite://", "tls_cert": certificate, "tls_key": key})
    with TestClient(create_app(settings), base_url="https://localhost") as client:
        assert client.get("/health/live").status_code == 200
        certificate.unlink()
        assert client.get("/health/live").status_code == 200  # it is being replaced
        certificate.touch()
        os.utime(certificate, (time.time() + 5, time.time() + 5))
        answer = client.get("/health/live")
        assert (answer.status_code, "restart" in answer.json()["detail"]) == (503, True)
        assert client.get("/health/ready").status_code == 200  # callers are answered until then


def test_our_client_trusts_the_authority_that_the_environment_names(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    from precision_time.client import client

    monkeypatch.setenv("SSL_CERT_FILE", str(served.authority))
    with client.Client(served.url, retries=0) as asked:
        assert asked.health()["status"] == "ready"
    monkeypatch.delenv("SSL_CERT_FILE")
    with client.Client(served.url, retries=0) as asked, pytest.raises(ServerError, match="certificate"):
        asked.health()
