"""A certificate for this machine's loopback, and its authority: two files in PEM."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificate:
    """`chain` holds key and certificate, for a server; `ca` what a client must trust."""

    chain: Path
    ca: Path


def certificate(folder: Path, *, for_name: str = "localhost") -> Certificate:
    """Signed by itself, for this name and 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, for_name)])
    now = datetime.now(UTC)
    names = [x509.DNSName(for_name), *([x509.IPAddress(ip_address("127.0.0.1"))] if for_name == "localhost" else [])]
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = signed.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    folder.mkdir(parents=True, exist_ok=True)
    ca, chain = folder / "ca.pem", folder / "chain.pem"
    ca.write_bytes(pem)
    chain.write_bytes(private + pem)
    return Certificate(chain, ca)
