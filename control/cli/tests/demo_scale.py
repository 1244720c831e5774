#!/usr/bin/env python3
"""Time and memory of a large demo.

Starts `lattice demo --nodes N` (LATTICE_BINARY, else the dist build), waits until its nodes are
ready, lets its workload run for a while, and ends it with SIGINT. Prints the time from start to
ready, and processes, threads and memory by kind of process: when the nodes are ready, and the
largest values while jobs run. The last table compares them with the figures by which the demo
refuses a number of nodes (control/cli/src/demo/capacity.rs). LATTICE_OUTPUT=json prints one
object.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CAPACITY = ROOT / "control/cli/src/demo/capacity.rs"
READY = re.compile(r"(\d+) nodes are ready after ([0-9.]+) s")
SAMPLE_INTERVAL_S = 1.0
STOP_TIMEOUT_S = 120.0
KINDS = ("demo", "supervisor", "probe", "job")
"""The demo holds members, control, agents and BMCs. A job is every process of an allocation."""


@dataclass
class Use:
    """Use of one kind of process."""

    processes: int = 0
    threads: int = 0
    memory_mib: float = 0.0
    open_files: int = 0

    def add(self, other: Use) -> None:
        self.processes += other.processes
        self.threads += other.threads
        self.memory_mib += other.memory_mib
        self.open_files += other.open_files

    def raise_to(self, other: Use) -> None:
        self.processes = max(self.processes, other.processes)
        self.threads = max(self.threads, other.threads)
        self.memory_mib = max(self.memory_mib, other.memory_mib)
        self.open_files = max(self.open_files, other.open_files)


@dataclass
class Sample:
    """Use of all processes of the demo, by kind and in total."""

    kinds: dict[str, Use] = field(default_factory=lambda: {kind: Use() for kind in KINDS})
    total: Use = field(default_factory=Use)

    def raise_to(self, other: Sample) -> None:
        for kind in KINDS:
            self.kinds[kind].raise_to(other.kinds[kind])
        self.total.raise_to(other.total)


def read(pid: int, file: str) -> str:
    """Return a file of a process, empty if the process has ended or the file is not readable."""
    try:
        return Path(f"/proc/{pid}/{file}").read_text(errors="replace")
    except OSError:
        return ""


def descendants(root: int) -> list[int]:
    """Return a process and everything below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = read(int(entry.name), "stat").rpartition(")")[2].split()
            if len(fields) > 1 and fields[0] not in "ZX":
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, rest = [], [root]
    while rest:
        pid = rest.pop()
        found.append(pid)
        rest.extend(children.get(pid, ()))
    return found


def kind_of(pid: int, demo: int) -> str:
    """Return the kind of a process by its first argument; the programs name hidden commands so."""
    if pid == demo:
        return "demo"
    words = read(pid, "cmdline").split("\0")
    first = words[1] if len(words) > 1 else ""
    if first == "__supervise":
        return "supervisor"
    return "probe" if first.startswith(("__probe", "__watch")) else "job"


def use_of(pid: int) -> Use:
    """Return the use of one process. Shared memory counts in proportion."""
    status = read(pid, "status")
    threads = re.search(r"^Threads:\s+(\d+)", status, re.M)
    kib = re.search(r"^Pss:\s+(\d+)", read(pid, "smaps_rollup"), re.M)
    kib = kib or re.search(r"^VmRSS:\s+(\d+)", status, re.M)
    try:
        open_files = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        open_files = 0
    return Use(
        processes=1,
        threads=int(threads[1]) if threads else 1,
        memory_mib=int(kib[1]) / 1024 if kib else 0.0,
        open_files=open_files,
    )


def sample(demo: int) -> Sample:
    """Read the present use."""
    now = Sample()
    for pid in descendants(demo):
        use = use_of(pid)
        now.kinds[kind_of(pid, demo)].add(use)
        now.total.add(use)
    return now


def needs(name: str) -> dict[str, int]:
    """Return the figures of one constant in capacity.rs."""
    block = re.search(rf"const {name}: Needs = Needs \{{(.*?)\}};", CAPACITY.read_text(), re.S)
    if block is None:
        sys.exit(f"{CAPACITY}: no constant {name} of type Needs; correct demo_scale.py")
    figures = re.findall(r"(\w+): (\d+)(?: << (\d+))?,", block[1])
    return {key: int(number) << int(shift or 0) for key, number, shift in figures}


class Demo:
    """A running demo, and the lines that it prints."""

    def __init__(self, binary: Path, nodes: int) -> None:
        self.started = time.monotonic()
        self.lines: list[str] = []
        self.ready: re.Match[str] | None = None
        self.child = subprocess.Popen(
            [str(binary), "demo", "--nodes", str(nodes)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self.reader = threading.Thread(target=self.read_lines, daemon=True)
        self.reader.start()

    def read_lines(self) -> None:
        assert self.child.stderr is not None
        for line in self.child.stderr:
            self.lines.append(line.rstrip())
            self.ready = self.ready or READY.search(line)

    def check_running(self) -> None:
        if self.child.poll() is not None:
            self.reader.join(5)
            last = "\n".join(self.lines[-20:])
            sys.exit(f"the demo ended with code {self.child.returncode}:\n{last}")

    def wait_until_ready(self) -> float:
        """Return the seconds from start to ready, as the demo reports them."""
        while self.ready is None:
            self.check_running()
            time.sleep(0.05)
        return float(self.ready[2])

    def largest_use(self, seconds: float) -> Sample:
        """Return the largest values of samples during this time."""
        largest, ends_at = Sample(), time.monotonic() + seconds
        while time.monotonic() < ends_at:
            self.check_running()
            largest.raise_to(sample(self.child.pid))
            time.sleep(SAMPLE_INTERVAL_S)
        return largest

    def stop(self) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGINT)
            try:
                self.child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.child.kill()
                sys.exit(f"the demo did not end within {STOP_TIMEOUT_S:.0f} s of SIGINT")


def per_node(nodes: int, at_ready: Sample, largest: Sample) -> dict[str, dict[str, float]]:
    """Return the figure of each resource, and measured values less the figure of the services."""
    services, node = needs("SERVICES"), needs("NODE")

    def of(figure: str, unit: int, value: str) -> dict[str, float]:
        def share(use: Use) -> float:
            return (getattr(use, value) - services[figure] / unit) / nodes

        # Each process has a limit of open files of its own; the demo has most.
        def counted(one: Sample) -> Use:
            return one.kinds["demo"] if value == "open_files" else one.total

        return {
            "figure": node[figure] / unit,
            "at_ready": share(counted(at_ready)),
            "largest": share(counted(largest)),
        }

    return {
        "memory_mib": of("memory_bytes", 1 << 20, "memory_mib"),
        "open_files": of("open_files", 1, "open_files"),
        "threads": of("processes", 1, "threads"),
    }


def print_table(nodes: int, ready_s: float, uses: dict[str, Sample], figures: dict) -> None:
    print(f"{nodes} nodes are ready {ready_s:.1f} s after the start")
    head = ("kind", "when", "processes", "threads", "memory MiB", "files")
    print("{:<12} {:<9} {:>9} {:>8} {:>11} {:>7}".format(*head))
    for kind in (*KINDS, "total"):
        for when, one in uses.items():
            use = one.total if kind == "total" else one.kinds[kind]
            print(
                f"{kind:<12} {when:<9} {use.processes:>9} {use.threads:>8} "
                f"{use.memory_mib:>11.1f} {use.open_files:>7}"
            )
    print(f"{'per node':<12} {'figure':>9} {'at ready':>9} {'largest':>9}")
    for name, row in figures.items():
        print(f"{name:<12} {row['figure']:>9.1f} {row['at_ready']:>9.2f} {row['largest']:>9.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of a large demo.")
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--run-s", type=float, default=45.0, help="seconds with jobs, after ready")
    args = parser.parse_args()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    binary = Path(os.environ.get("LATTICE_BINARY", target / "dist/lattice"))
    needs("NODE")
    demo = Demo(binary, args.nodes)
    try:
        ready_s = demo.wait_until_ready()
        at_ready = sample(demo.child.pid)
        largest = demo.largest_use(args.run_s)
    finally:
        demo.stop()
    figures = per_node(args.nodes, at_ready, largest)
    if os.environ.get("LATTICE_OUTPUT") == "json":
        document = {
            "nodes": args.nodes,
            "ready_s": ready_s,
            "at_ready": asdict(at_ready),
            "largest": asdict(largest),
            "per_node": figures,
        }
        print(json.dumps(document))
    else:
        print_table(args.nodes, ready_s, {"ready": at_ready, "largest": largest}, figures)


if __name__ == "__main__":
    main()
