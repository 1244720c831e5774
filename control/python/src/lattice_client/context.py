"""Context files: address of a cluster and credentials for it.

Search order, as in the `lattice` command: the given file, `LATTICE_CONTEXT`, the user's own default
(`$XDG_CONFIG_HOME/lattice/context.json`), then the file of a running demo.
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
"""Environment variable with the path of a context file."""

AnyPath = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Context:
    """Address of a server, its CA, and the caller's token."""

    server: str
    """Server address, as `https://host:port`."""
    ca_pem: str
    """CA that signed the server's certificate, in PEM form."""
    token: str = field(repr=False)
    """Bearer token."""
    demo_pid: int | None = None
    """Process id of the demo that wrote the file; the context is invalid once that process has
    ended."""


def find(explicit: AnyPath | None = None) -> Context:
    """Find and read the context to use.

    Raises `EndpointError` if no context exists, or if it is unusable.
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
        return demos[0][1]
    if demos:
        listed = "".join(f"\n  {path} ({context.server})" for path, context in demos)
        raise EndpointError(
            f"several demos are running; name the context of one, or set {VARIABLE}:{listed}"
        )
    raise EndpointError(
        f"no cluster is known: give url and token, name a context file, set {VARIABLE}, or start "
        "one with `lattice demo`"
    )


def runtime_dir() -> Path:
    """Return the folder of the context files of demos."""
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
    """Read one context file.

    A file that other users can read, or that another user owns, is refused, because it contains a
    token.

    Raises `EndpointError`.
    """
    about = f"context file {os.fspath(path)}"
    try:
        with open(path, encoding="utf-8") as file:
            # Checks the open file: its name may refer to a different file by now.
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


def _live_demos(folder: Path) -> Iterator[tuple[Path, Context]]:
    """Yield the contexts of running demos, with the paths of their files.

    Only a folder and files of the caller count, for root too: a context planted by another user
    would receive the caller's requests and token.
    """
    try:
        meta = folder.lstat()
        if not stat.S_ISDIR(meta.st_mode) or not _is_ours(meta):
            return
        paths = sorted(folder.glob("*.json"))
    except OSError:
        return
    for path in paths:
        # A file that vanishes or has another owner is skipped; only a named file raises an error.
        try:
            meta = path.lstat()
            if not stat.S_ISREG(meta.st_mode) or not _is_ours(meta):
                continue
            context = read(path)
        except (OSError, EndpointError):
            continue
        if context.demo_pid is not None and _is_running(context.demo_pid):
            yield path, context


def _is_running(pid: int) -> bool:
    """Return whether a process with this id exists and has not ended.

    A zombie, which ended but was not waited for by its parent, is still listed.
    """
    proc = Path("/proc")
    if (proc / "self").exists():
        try:
            text = (proc / str(pid) / "stat").read_text("utf-8", "replace")
        except OSError:
            return False
        # The process name before the state is in parentheses and may contain any character.
        return text.rpartition(") ")[2][:1] not in ("Z", "X", "")
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
