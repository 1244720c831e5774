#!/usr/bin/env python3
"""Runs the test executables of `cargo test --workspace` in two lanes, and prints the time of each.

`cargo test` runs test executables one after another. About half of them start daemons and wait for timers, so
one of two processors is idle. Here one lane runs executables that wait and the other those that compute, each
with the threads that suit it. Executables, working directories and library paths are those of `cargo test`.

cargo-nextest is not used: it starts a process for each test, and tests that share a cluster in one process
would start that cluster again and again.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

# Executables that start processes or wait for timers, as `package/target`. The waiting lane takes them in this order;
# the computing lane, once it has none of its own left, takes them from the end. Executables that measure time or start
# many daemons come first, so that they run in parallel with those that compute.
WAITING = [
    "lattice-tests/netns",
    "lattice-tests/it",
    "lattice-cli/it",
    "lattice-tests/scenarios",
    "lattice-control/cluster",
    "lattice-quorum/processes",
    "lattice-quorum/it",
    "lattice-mesh/it",
    "lattice-gossip/it",
    "lattice-agent/processes",
    "lattice-agent/it",
    "lattice-waldur/it",
    "lattice-engine/lib",
    "lattice-http/lib",
]
# Seconds after which an executable is killed and its output printed. The longest takes 250.
LIMIT_S = 1800
# Threads of one executable. An executable that waits leaves a processor to the other lane.
THREADS = {"waiting": "2", "computing": "1"}


def built():
    """Builds all test executables; yields (name, path, package folder) for each."""
    command = ["cargo", "test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        sys.exit(run.returncode)
    for line in run.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message["profile"]["test"]:
            continue
        if message["executable"]:
            folder = Path(message["manifest_path"]).parent
            package = message["package_id"].rsplit("/", 1)[-1].split("#")[-1].split("@")[0]
            package = package_name(folder) or package
            target = message["target"]
            kind = target["kind"][0]
            name = f"{package}/{target['name'] if kind in ('test', 'bench', 'example') else kind}"
            yield name, message["executable"], folder


def package_name(folder):
    """Returns the name in a package's manifest."""
    for line in (folder / "Cargo.toml").read_text().splitlines():
        if line.startswith("name = "):
            return line.split('"')[1]
    return None


def library_path(executable):
    """Returns the library path that `cargo test` sets: shared libraries of the build and of the toolchain."""
    deps = Path(executable).parent
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True)
    paths = [deps, deps.parent, Path(sysroot.stdout.strip()) / "lib"]
    return ":".join(map(str, paths))


class Results:
    """Results of the executables of both lanes."""

    def __init__(self):
        self.lock = threading.Lock()
        self.rows = []

    def add(self, name, seconds, code, output):
        """Records one executable. A nonzero or missing exit code is a failure; then the output is printed."""
        passed, failed = counts(output)
        with self.lock:
            self.rows.append((seconds, name, code, passed, failed))
            state = "ok" if code == 0 else f"FAILED ({code})"
            print(f"{seconds:7.1f} s  {name}: {state}, {passed} passed, {failed} failed", flush=True)
            if code != 0:
                print(output, flush=True)


def counts(output):
    """Returns the numbers of passed and failed tests, from the last lines of an executable's output."""
    passed = sum(int(n) for n in re.findall(r"^test result: .*?(\d+) passed", output, re.M))
    failed = sum(int(n) for n in re.findall(r"^test result: .*?(\d+) failed", output, re.M))
    # The scenarios program has its own last line: `72 scenarios, 0 failed, 241.1 s in all`.
    for played, failures in re.findall(r"^(\d+) scenarios, (\d+) failed", output, re.M):
        passed += int(played) - int(failures)
        failed += int(failures)
    return passed, failed


def take(lane, queues):
    """Returns the kind and the next executable of a lane; None when no executable is left."""
    for kind, pop in ((lane, deque.popleft), ("waiting", deque.pop), ("computing", deque.popleft)):
        try:
            return kind, pop(queues[kind])
        except IndexError:
            pass
    return None


def execute(executable, folder, environment):
    """Runs one executable; returns its exit code and its output.

    The output goes to a file: a process left behind by a test would keep a pipe open, and the lane would wait for it.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [executable],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = f"no end within {LIMIT_S} s"
        output.seek(0)
        return code, output.read().decode(errors="replace")


def run(lane, queues, results, libraries):
    """Runs the executables of a lane, then the remaining ones of the other lane."""
    while taken := take(lane, queues):
        kind, (name, executable, folder) = taken
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": libraries,
            "CARGO_MANIFEST_DIR": str(folder),
            "RUST_TEST_THREADS": os.environ.get("RUST_TEST_THREADS", THREADS[kind]),
        }
        print(f"           {name}: started", flush=True)
        start = time.monotonic()
        try:
            code, output = execute(executable, folder, environment)
        except OSError as error:
            code, output = "not started", str(error)
        results.add(name, time.monotonic() - start, code, output)


def main():
    tests = sorted(built())
    if not tests:
        sys.exit("cargo built no test executable")
    order = {name: place for place, name in enumerate(WAITING)}
    waiting = deque(sorted((t for t in tests if t[0] in order), key=lambda t: order[t[0]]))
    computing = deque(t for t in tests if t[0] not in order)
    unknown = set(order) - {name for name, _, _ in tests}
    if unknown:
        sys.exit(f"{__file__}: WAITING names executables that do not exist: {sorted(unknown)}")
    libraries = library_path(tests[0][1])
    results = Results()
    queues = {"waiting": waiting, "computing": computing}
    lanes = [threading.Thread(target=run, args=(lane, queues, results, libraries)) for lane in queues]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    rows = sorted(results.rows, reverse=True)
    print("\nthe ten slowest test executables:")
    for seconds, name, *_ in rows[:10]:
        print(f"{seconds:7.1f} s  {name}")
    passed = sum(row[3] for row in rows)
    failed = sum(row[4] for row in rows)
    broken = [row[1] for row in rows if row[2] != 0]
    print(f"{len(rows)} test executables")
    print(f"{passed} passed, {failed} failed")
    if broken:
        sys.exit(f"failed: {', '.join(broken)}")
    # A lane that ended with an exception has left executables.
    if missing := {test[0] for test in tests} - {row[1] for row in rows}:
        sys.exit(f"did not run: {', '.join(sorted(missing))}")


if __name__ == "__main__":
    main()
