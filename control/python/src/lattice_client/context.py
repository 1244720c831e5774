"""Which cluster to talk to, and as whom: where it is not said, as the `lattice` command finds it.

Looked for in this order: a file that is named, `LATTICE_CONTEXT`, the user's own default
(`$XDG_CONFIG_HOME/lattice/context.json`), then the file of a demo that is running now.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from .errors import EndpointError

VARIABLE = "LATTICE_CONTEXT"
"""The environment variable that names a context file."""

AnyPath = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Context:
    """A server with what is needed to trust it and to be known by it."""

    server: str
    """`https://host:port`."""
    ca_pem: str
    """The authority that signed the server's certificate."""
    token: str = field(repr=False)
    """Bearer token."""
    demo_pid: int | None = None
    """The demo process that wrote it; such a context is over when that process is."""


def find(explicit: AnyPath | None = None) -> Context:
    """Finds and reads the context to use.

    Raises `EndpointError` where there is none, or it cannot be used.
    """
    if explicit is not None:
        return read(explicit)
    named = os.environ.get(VARIABLE)
    if named:
        try:
            return read(named)
        except EndpointError as error:
            raise EndpointError(f"{error} ({VARIABLE} names this file)") from error
    own = _user_default()
    if own is not None and own.exists():
        return read(own)
    demos = list(_live_demos(runtime_dir()))
    if len(demos) == 1:
        return demos[0]
    if demos:
        folder = runtime_dir()
        raise EndpointError(
            f"several demos are running; name the context of one, from {folder}, or set {VARIABLE}"
        )
    raise EndpointError(
        f"no cluster is known: give url and token, name a context file, set {VARIABLE}, or start "
        "one with `lattice demo`"
    )


def runtime_dir() -> Path:
    """Folder for demos' files."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "lattice"
    return Path(tempfile.gettempdir()) / f"lattice-{_uid()}"


def _user_default() -> Path | None:
    config = os.environ.get("XDG_CONFIG_HOME")
    if config is None:
        home = os.environ.get("HOME")
        if home is None:
            return None
        return Path(home) / ".config" / "lattice" / "context.json"
    return Path(config) / "lattice" / "context.json"


def read(path: AnyPath) -> Context:
    """Reads one context file. One that others can read, or that is somebody else's, is refused: it
    holds a token.

    Raises `EndpointError`.
    """
    about = f"context file {os.fspath(path)}"
    try:
        with open(path, encoding="utf-8") as file:
            # Of the file that is open: its name may be another's by now.
            _check(os.fstat(file.fileno()), about, os.fspath(path))
            text = file.read()
        return _parse(json.loads(text))
    except (OSError, ValueError) as error:
        raise EndpointError(f"{about}: {error}") from error


def _check(meta: os.stat_result, about: str, path: str) -> None:
    if not hasattr(os, "getuid"):
        return
    uid = _uid()
    if meta.st_uid != uid and uid != 0:
        raise EndpointError(f"{about} belongs to another user")
    if stat.S_IMODE(meta.st_mode) & 0o077:
        raise EndpointError(f"{about} can be read by others; run: chmod 600 {path}")


def _parse(value: Any) -> Context:
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")

    def text(name: str) -> str:
        found = value.get(name)
        if not isinstance(found, str):
            raise ValueError(f"{name} is missing, or not text")
        return found

    pid = value.get("demo_pid")
    known = pid if isinstance(pid, int) else None
    return Context(text("server"), text("ca_pem"), text("token"), known)


def _uid() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _is_ours(meta: os.stat_result) -> bool:
    return meta.st_uid == _uid()


def _live_demos(folder: Path) -> Iterator[Context]:
    """Contexts of demos that run now. Only our own folder and files count, for root too: whoever
    can plant one elsewhere would be sent our calls."""
    try:
        meta = folder.lstat()
        if not stat.S_ISDIR(meta.st_mode) or not _is_ours(meta):
            return
        paths = sorted(folder.glob("*.json"))
    except OSError:
        return
    for path in paths:
        # One that vanishes or is not ours is no candidate; only a named one is worth an error.
        try:
            meta = path.lstat()
            if not stat.S_ISREG(meta.st_mode) or not _is_ours(meta):
                continue
            context = read(path)
        except (OSError, EndpointError):
            continue
        if context.demo_pid is not None and _is_running(context.demo_pid):
            yield context


def _is_running(pid: int) -> bool:
    """Whether a process has this number and has not ended: one that ended and whose parent has not
    asked how is still listed."""
    proc = Path("/proc")
    if (proc / "self").exists():
        try:
            text = (proc / str(pid) / "stat").read_text("utf-8", "replace")
        except OSError:
            return False
        # The name before the state is in parentheses and may hold anything.
        return text.rpartition(") ")[2][:1] not in ("Z", "X", "")
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
