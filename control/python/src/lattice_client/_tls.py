"""TLS verification of the server: by one CA, by a pinned certificate, or by the CAs of the system.

Verification is part of the handshake, so an untrusted server receives no data and no token.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
from typing import Any

from .errors import EndpointError


def context(ca_pem: str | None, pin: str | None) -> ssl.SSLContext:
    """Return a TLS context.

    With `ca_pem` no other CA is trusted. With `pin` the certificate must be the pinned one; without
    a CA, neither its names nor its dates are checked then.

    Raises `EndpointError`.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_pem is not None:
        _trust(made, ca_pem)
    elif pin is None:
        made.load_default_certs()
    else:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if pin is not None:
        _pin(made, digest_of(pin))
    return made


def _trust(made: ssl.SSLContext, ca_pem: str) -> None:
    try:
        made.load_verify_locations(cadata=ca_pem)
    except (ssl.SSLError, ValueError) as error:
        raise EndpointError(f"the authority's certificate cannot be used: {error}") from error
    if not made.get_ca_certs():
        raise EndpointError("the authority's certificate is not a CA certificate")


def digest_of(pin: str) -> bytes:
    """Parse `sha256:` and 64 hex digits, with optional colons between bytes.

    Raises `EndpointError`.
    """
    found = re.fullmatch(r"sha256:((?:[0-9a-f]{2}:?){32})", pin.strip().lower())
    if found is None or found.group(1).endswith(":"):
        raise EndpointError(f"the pin {pin!r} is not sha256: and 64 hex digits")
    return bytes.fromhex(found.group(1).replace(":", ""))


def _pin(made: ssl.SSLContext, wanted: bytes) -> None:
    def judge(shown: bytes | None) -> None:
        digest = hashlib.sha256(shown or b"").digest()
        if shown is None or not hmac.compare_digest(digest, wanted):
            raise ssl.SSLCertVerificationError(
                f"its certificate is sha256:{digest.hex()}, and sha256:{wanted.hex()} is pinned"
            )

    class PinnedSocket(ssl.SSLSocket):
        def do_handshake(self, *args: Any, **kwargs: Any) -> None:
            super().do_handshake(*args, **kwargs)
            judge(self.getpeercert(binary_form=True))

    class PinnedObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            # Raises an exception until the handshake is complete.
            super().do_handshake()
            judge(self.getpeercert(binary_form=True))

    made.sslsocket_class = PinnedSocket
    made.sslobject_class = PinnedObject
