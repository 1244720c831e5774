"""Demo cluster for tests: `lattice demo`, stopped with Ctrl-C.

The program is LATTICE_BINARY, else that of `target/release` or `target/debug`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]

START_TIMEOUT = 120.0
"""Timeout in seconds until the nodes of the demo are ready."""
PLAY_TIMEOUT = 170.0
"""Timeout in seconds until the recorded jobs have ended."""
STOP_TIMEOUT = 30.0
"""Timeout in seconds until the demo has stopped."""
NODES = 4
"""Number of nodes: three captured hosts and the local machine."""


def program() -> Path:
    """Return the path of the `lattice` command."""
    named = os.environ.get("LATTICE_BINARY")
    built = [ROOT / "target" / profile / "lattice" for profile in ("release", "debug")]
    candidates = [Path(named)] if named else built
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    tried = " or ".join(map(str, candidates))
    raise FileNotFoundError(f"no {tried}: build it with `cargo build --release -p lattice-cli`")


@dataclass
class Demo:
    """A running demo."""

    context_file: Path
    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)

    @property
    def context(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.context_file.read_text())
        return found

    def expect(self, text: str, timeout: float) -> None:
        """Wait until the output of the demo contains `text`, at most `timeout` seconds."""
        ends_at = time.monotonic() + timeout
        while not any(text in line for line in self.said):
            said = "".join(self.said)
            assert self.process.poll() is None, f"the demo ended:\n{said}"
            assert time.monotonic() < ends_at, f"the demo did not say {text!r}:\n{said}"
            time.sleep(0.05)


@contextmanager
def started(folder: Path) -> Iterator[Demo]:
    """Run a demo with its files in `folder`, and yield it once its nodes are ready.

    Its recorded jobs may still run then.
    """
    (folder / "runtime").mkdir(mode=0o700)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder / "runtime")}
    command = [program(), "demo", "--nodes", str(NODES), "--fixtures", ROOT / "fixtures"]
    process = subprocess.Popen(
        list(map(str, command)),
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    running = Demo(folder / "runtime" / "lattice" / f"demo-{process.pid}.json", process)
    assert process.stdout is not None
    reader = threading.Thread(target=lambda out: running.said.extend(out), args=(process.stdout,))
    reader.start()
    try:
        running.expect("nodes are ready after", START_TIMEOUT)
        yield running
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join()


def plays_out(demo: Demo) -> None:
    """Wait until the recorded jobs of the demo have ended."""
    demo.expect("The cluster keeps running", PLAY_TIMEOUT)
