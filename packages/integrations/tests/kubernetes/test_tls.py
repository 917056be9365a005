"""HTTPS of the service: a real certificate chain, clients that verify it, and those that must not get in."""

from __future__ import annotations

import socket
import ssl
import time
import urllib.error
from pathlib import Path

import pytest

from precision_time.errors import ConfigError, ServerError
from precision_time_server.settings import Settings

from .conftest import Served, ask


def test_a_client_that_verifies_the_authority_is_answered(served: Served) -> None:
    status, found = ask(f"{served.url}/v1/predictions", {"model": "resnet50"}, authority=served.authority)
    assert status == 200
    assert found["step_time_s"] > 0


def test_wrong_names_and_unknown_authorities_are_refused(served: Served) -> None:
    cases = (
        (f"https://127.0.0.1:{served.port}/health/live", served.authority, "IP address mismatch"),
        (f"{served.url}/health/live", None, "self-signed certificate in certificate chain"),
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


def _files(folder: Path, name: str) -> tuple[Path, Path, bytes]:
    from precision_time_integrations.kubernetes.certificates import make_pair

    pair = make_pair(["localhost"], days=1)
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(pair.chain)
    key.write_bytes(pair.key)
    return certificate, key, pair.authority


def test_files_that_cannot_be_served_are_refused_before_the_start(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    from precision_time_server.tls import check_certificate

    certificate, key, _ = _files(tmp_path, "tls")
    check_certificate(certificate, key)
    _, other, _ = _files(tmp_path, "other")
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_bytes(
        serialization.load_pem_private_key(key.read_bytes(), None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
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
            check_certificate(*wrong)
    with pytest.raises(ConfigError, match="--tls-cert and --tls-key"):
        Settings.of({"tls_cert": certificate})


def test_a_renewed_certificate_is_read_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import uvicorn

    from precision_time_server import tls

    monkeypatch.setattr(tls, "RENEWED_EVERY_S", 0.02)
    certificate, key, first = _files(tmp_path, "tls")
    config = uvicorn.Config(
        "none:app", ssl_certfile=certificate, ssl_keyfile=key, ssl_context_factory=tls.renewed_context
    )

    def read() -> ssl.SSLContext:
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found.load_cert_chain(certificate, key)
        return found

    context = tls.renewed_context(config, read)
    assert _accepts(context, first)
    key.write_bytes(b"half of a pair")
    time.sleep(0.1)
    assert _accepts(context, first)  # the old one stays
    _, _, second = _files(tmp_path, "tls")
    end_s = time.monotonic() + 30
    while not _accepts(context, second):
        assert time.monotonic() < end_s
        time.sleep(0.02)
    assert not _accepts(context, first)


def _accepts(server: ssl.SSLContext, authority: bytes) -> bool:
    """Whether a client that trusts an authority accepts a server, without a network."""
    return all(_agrees(server, authority, name) for name in ("localhost", None))  # with a name and without


def _agrees(server: ssl.SSLContext, authority: bytes, name: str | None) -> bool:
    client = ssl.create_default_context(cadata=authority.decode())
    client.check_hostname = name is not None
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname=name),
        server.wrap_bio(there, back, server_side=True),
    ]
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return True


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
