"""Endpoint: address of a server, its trusted certificate, and the caller's token."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from . import _tls, context
from .context import AnyPath
from .errors import EndpointError


@dataclass(frozen=True)
class Endpoint:
    """Endpoint of a server. `url` is checked, and `token` is valid in a header."""

    url: str
    """Server address, as `https://host:port`."""
    token: str = field(repr=False)
    ca_pem: str | None = None
    """The only trusted CA, in PEM form; `None` for the CAs of the system, or for `pin` alone."""
    pin: str | None = None
    """Pin of the server's certificate: `sha256:` and the digest of its DER form."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        plain = parts.path in ("", "/") and not (parts.query or parts.fragment or parts.username)
        if parts.scheme != "https" or not parts.hostname or not plain:
            raise EndpointError(f"{self.url!r} must be https://host:port")
        if not self.token or not all("!" <= c <= "~" for c in self.token):
            raise EndpointError(
                "the token is empty, or contains characters that are not valid in an HTTP header"
            )
        object.__setattr__(self, "url", f"https://{parts.netloc}")

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context of the connections."""
        return _tls.context(self.ca_pem, self.pin)


def endpoint(
    url: str | None,
    token: str | None,
    ca_pem: str | None,
    ca_file: AnyPath | None,
    pin: str | None,
    context_file: AnyPath | None,
) -> Endpoint:
    """Return the endpoint given by the arguments, or else by a context file.

    Raises `EndpointError`.
    """
    if url is None:
        said = {"token": token, "ca_pem": ca_pem, "ca_file": ca_file, "pin": pin}
        unused = [name for name, value in said.items() if value is not None]
        if unused:
            raise EndpointError(f"{', '.join(unused)} without url: give both, or none")
        found = context.find(context_file)
        return Endpoint(found.server, found.token, found.ca_pem)
    if context_file is not None:
        raise EndpointError("give url and token, or a context, not both")
    if token is None:
        raise EndpointError("url without token: give both, or none")
    if ca_file is not None:
        if ca_pem is not None:
            raise EndpointError("give ca_pem or ca_file, not both")
        ca_pem = _text(ca_file)
    return Endpoint(url, token, ca_pem, pin)


def _text(path: AnyPath) -> str:
    try:
        return Path(path).read_text("ascii")
    except (OSError, ValueError) as error:
        raise EndpointError(f"ca_file: {error}") from error
