"""Whose certificates this machine trusts.

Knows: where the system keeps its authorities. The packages carry Debian's Python, whose OpenSSL looks where Debian has
them; RHEL's relatives have them elsewhere.
"""

import ssl
from pathlib import Path

_OF_RHEL = Path("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem")  # update-ca-trust(8)


def places() -> tuple[str | None, str | None]:
    """A file and a folder of certificates, each where there is one; `SSL_CERT_FILE` and `SSL_CERT_DIR` count."""
    known = ssl.get_default_verify_paths()
    if known.cafile is None and known.capath is None and _OF_RHEL.exists():
        return str(_OF_RHEL), None
    return known.cafile, known.capath


def system_tls() -> ssl.SSLContext:
    """Certificates and names are checked against the system's authorities."""
    file, folder = places()
    return ssl.create_default_context(cafile=file, capath=folder)
