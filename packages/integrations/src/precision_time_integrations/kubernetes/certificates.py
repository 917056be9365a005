"""A certificate for the webhook, and the authority that an API server trusts it by."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from precision_time.errors import ConfigError, required_module, shown

_BEFORE = datetime.timedelta(minutes=5)
"""Clocks of a cluster differ."""
MOST_DAYS = 3650


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Certificate and key of a server, in PEM."""

    authority: bytes
    """Certificate that clients trust; its key is not kept."""
    chain: bytes
    """Certificate of the server, and the authority's after it."""
    key: bytes
    """Private key of the server."""

    @property
    def ca_bundle(self) -> str:
        """As a MutatingWebhookConfiguration has it."""
        return base64.b64encode(self.authority).decode()


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Names by which a service of a cluster is called; the first one is what an API server uses."""
    return (
        f"{service}.{namespace}.svc",
        f"{service}.{namespace}.svc.cluster.local",
        f"{service}.{namespace}",
        service,
    )


def make_pair(names: Sequence[str], *, days: int = 365) -> Pair:
    """A new authority and a certificate that it issues (ECDSA, P-256).

    Args:
        names: DNS names of the server.
        days: How long both hold.

    Raises:
        ConfigError: If there is no name, one is none, or the days are not 1 to 3650.
        MissingExtraError: If cryptography is not installed.
    """
    for module in ("cryptography.x509", "cryptography.hazmat.primitives.asymmetric.ec"):
        required_module(
            module,
            package="cryptography",
            extra="precision-time-integrations[kubernetes]",
            purpose="make certificates",
        )
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    if not 1 <= days <= MOST_DAYS:
        raise ConfigError(f"days={shown(days)} must be 1 to {MOST_DAYS}. To fix: such as 365.")
    try:
        called = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    except ValueError as error:
        raise ConfigError(f"{shown(list(names))} are no DNS names: {error}. To fix: ASCII names.") from None
    if not names:
        raise ConfigError("No name for the certificate. To fix: give the name of the service.")
    start = datetime.datetime.now(datetime.UTC) - _BEFORE
    end = start + datetime.timedelta(days=days)
    of_authority = ec.generate_private_key(ec.SECP256R1())
    of_server = ec.generate_private_key(ec.SECP256R1())
    issuer = _subject("precision-time webhook authority")

    def signed(subject: Any, public: Any, extensions: Sequence[tuple[Any, bool]]) -> Any:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(of_authority.public_key()), critical=False
            )
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(of_authority, hashes.SHA256())

    authority = signed(
        issuer,
        of_authority.public_key(),
        [(x509.BasicConstraints(ca=True, path_length=0), True), (_usage(signs=True), True)],
    )
    server = signed(
        _subject(names[0][:64]),
        of_server.public_key(),
        [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage(signs=False), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
            (called, False),
        ],
    )
    pem = serialization.Encoding.PEM
    return Pair(
        authority=authority.public_bytes(pem),
        chain=server.public_bytes(pem) + authority.public_bytes(pem),
        key=of_server.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _subject(name: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs: bool) -> Any:
    """Key usage of an authority, or of a server."""
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
