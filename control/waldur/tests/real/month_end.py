#!/usr/bin/env python3
"""The end of a month with a real Waldur: totals of both months there, compared with `lattice usage`.

Starts a cluster (one quorum member, one control, four nodes with eight simulated GPUs each) under libfaketime shortly
before a month's end, with a proxy between control and Waldur that delays each call. Four projects use nodes across
the end. README.md has the environment and the options. Exit code 0: all totals agree, or a line of the status has the
difference.
"""
import argparse
import calendar
import datetime
import glob
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NODES = ["gpu001", "gpu002", "gpu003", "gpu004"]
PROJECTS = ["across", "again", "early", "late"]
TOKEN = "0123456789abcdef0123456789abcdef"
ROOT = Path(__file__).resolve().parents[4]
# Totals in Waldur are hundredths of an hour.
TOLERANCE_H = 0.0101


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--end", default="2026-12-01T00:00:00", help="end of the month, UTC; or a time where none ends")
    parser.add_argument("--skew", type=float, default=0, help="seconds by which Waldur's clock is ahead")
    parser.add_argument("--jump", default="", help="AT:SKEW,…: a new skew from AT seconds after the end")
    parser.add_argument("--step", default="", help="AT:BY,…: the cluster's clock is set by BY seconds")
    parser.add_argument("--delay", type=float, default=2, help="seconds by which each call is delayed")
    parser.add_argument("--interval", type=int, default=60, help="push_interval_seconds")
    parser.add_argument("--before", type=int, default=180, help="seconds before the end with delayed calls")
    parser.add_argument("--after", type=int, default=240, help="seconds after the end")
    parser.add_argument("--setup", type=int, default=90, help="seconds for the start of the cluster")
    parser.add_argument("--extra", default="", help="lines below `waldur` in control's file, separated by semicolons")
    parser.add_argument("--out", default="month-end", help="folder for the results; replaced")
    return parser.parse_args()


def required(name, hint, default=None):
    value = os.environ.get(name) or default
    if not value:
        sys.exit(f"{name} is not set: {hint}")
    return value


def private_mounts(library, clock):
    """Preloads libfaketime in all programs of this mount namespace: supervisors get no environment variables."""
    scratch = Path("/run/month-end-etc")
    scratch.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", scratch], check=True)
    for name in ("upper", "work"):
        (scratch / name).mkdir()
    options = f"lowerdir=/etc,upperdir={scratch}/upper,workdir={scratch}/work"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, "/etc"], check=True)
    Path("/etc/faketimerc").write_text(clock.read_text())
    Path("/etc/ld.so.preload").write_text(f"{library}\n")


class Proxy:
    """Delays calls to Waldur, and keeps the requests that change something."""

    def __init__(self, url, now):
        self.delay, self.changes, self.calls = 0.0, [], 0
        upstream, me = urllib.parse.urlsplit(url).netloc, self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                received = now()
                me.calls += 1
                time.sleep(me.delay)
                connection = http.client.HTTPConnection(upstream, timeout=120)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in ("connection", "content-length")}
                connection.request(self.command, self.path, body or None, headers)
                answer = connection.getresponse()
                data = answer.read()
                if self.command != "GET":
                    date = answer.getheader("Date")
                    me.changes.append([received, date, self.command, self.path, answer.status, body.decode()])
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() in ("content-type", "x-result-count", "link", "retry-after", "date"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                try:
                    self.wfile.write(data)
                except OSError:
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/api/"


class Waldur:
    def __init__(self, url, token):
        self.url, self.token = url.rstrip("/") + "/", token

    def all(self, path, **query):
        rows, page = [], 1
        while True:
            target = f"{self.url}{path}?{urllib.parse.urlencode(dict(query, page_size=100, page=page), doseq=True)}"
            request = urllib.request.Request(target, headers={"Authorization": f"Token {self.token}"})
            with urllib.request.urlopen(request) as answer:
                rows += json.load(answer)
                if len(rows) >= int(answer.headers.get("X-Result-Count") or 0):
                    return rows
            page += 1

    def totals(self, cluster):
        """Hours by project, month and component: of usage rows, and of invoice items."""
        usages, items, billed = {}, {}, {}
        resources = self.all("marketplace-provider-resources/", field=["uuid", "backend_id"])
        for resource in resources:
            if not resource["backend_id"].startswith(f"lattice:{cluster}:"):
                continue
            project = resource["backend_id"].split(":")[2].split("@")[0]
            for row in self.all("marketplace-component-usages/", resource_uuid=resource["uuid"]):
                key = (project, row["billing_period"][:7], row["type"])
                usages[key] = usages.get(key, 0) + float(row["usage"])
            billed[resource["uuid"]] = project
        months = {one["url"]: f"{one['year']}-{one['month']:02}" for one in self.all("invoices/")}
        for item in self.all("invoice-items/"):
            details = item["details"]
            project, component = billed.get(details.get("resource_uuid")), details.get("offering_component_type")
            if project and component in ("gpu_hours", "node_hours"):
                key = (project, months[item["invoice"]], component)
                items[key] = items.get(key, 0) + float(item["quantity"])
        return usages, items


class Cluster:
    def __init__(self, options, folder, proxy_url, clock):
        self.options, self.folder, self.clock = options, folder, clock
        folder_of_programs = required("LATTICE_BIN", "the folder with lattice and the daemons", ROOT / "target/debug")
        self.bin = Path(folder_of_programs).resolve()
        self.running, self.name = {}, f"m{int(time.time())}"
        self.ports = dict(zip(["quorum", "mesh", "https", *NODES], free_ports(3 + len(NODES))))
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "LC_ALL": "C.UTF-8",
            "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_CACHE_DURATION": "1", "DONT_FAKE_MONOTONIC": "1",
            "LATTICE_CONTEXT": str(folder / "context.json"), "LATTICE_LOG": os.environ.get("LATTICE_LOG", "info"),
        }
        self.proxy_url = proxy_url

    def cli(self, *arguments, check=True):
        command = [self.bin / "lattice", *arguments]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        if check and done.returncode != 0:
            raise RuntimeError(f"lattice {' '.join(map(str, arguments))}: {done.stderr}{done.stdout}")
        return done.stdout + (done.stderr if not check else "")

    def json(self, *arguments):
        return json.loads(self.cli(*arguments, "-o", "json"))

    def answers(self, *arguments):
        try:
            self.cli(*arguments)
            return True
        except RuntimeError:
            return False

    def start(self, name, program, **extra):
        log = open(self.folder / f"{name}.log", "ab")
        command = [self.bin / program, "--config", f"{name}.yaml"]
        environment = dict(self.environment, **extra)
        self.running[name] = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=log, stderr=log)

    def stop(self, name):
        self.running[name].send_signal(signal.SIGTERM)
        self.running[name].wait(60)

    def stop_all(self):
        for name, process in reversed(self.running.items()):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()

    def write(self, name, text, mode=0o644):
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)

    def set_up(self):
        at, ports, name = self.folder, self.ports, self.name
        # The context file is made below, and must exist for all commands after that.
        context = self.environment.pop("LATTICE_CONTEXT")
        self.cli("admin", "ca", "create", "--cluster", name, "--out", "ca")
        for role, id, out in (("quorum", "1", "quorum-1"), ("control", "c1", "control-1")):
            self.cli("admin", "ca", "issue", "--ca", "ca", "--cluster", name, "--role", role, "--id", id, "--out", out)
        self.cli("admin", "https", "--host", "127.0.0.1", "--out", "https")
        self.write("ada.token", TOKEN, 0o600)
        self.write("tokens.yaml", f"tokens:\n- {{name: ada, role: admin, token: {TOKEN}}}\n", 0o600)
        self.write("waldur.token", required("WALDUR_TOKEN", "the token of a staff user"), 0o600)
        quorum = f"127.0.0.1:{ports['quorum']}"
        self.write("quorum.yaml", f"""cluster: {name}
id: 1
listen: {quorum}
data_dir: {at}/quorum-data
credentials: {at}/quorum-1
enrolment: {{authority: {at}/ca, default_cell: cell-a}}
members: [{{id: 1, addr: "{quorum}"}}]
""")
        extra = "".join(f"    {line.strip()}\n" for line in self.options.extra.split(";") if line.strip())
        self.write("control.yaml", f"""cluster: {name}
listen: 127.0.0.1:{ports['mesh']}
credentials: {at}/control-1
data_dir: {at}/control-data
quorum: ["{quorum}"]
cells: [{{name: cell-a}}]
https: {{listen: "127.0.0.1:{ports['https']}", certificate: {at}/https/https.pem, key: {at}/https/https.key}}
tokens: {at}/tokens.yaml
auto_register: true
accounting:
  enabled: true
  provider: waldur
  waldur:
    api_url: "{self.proxy_url}"
    token_secret_ref: "file://{at}/waldur.token"
    push_interval_seconds: {self.options.interval}
    disk_buffer_path: {at}/accounting
{extra}""")
        library = os.environ.get("LATTICE_FAKE_NVML_LIBRARY") or self.bin / "liblattice_fake_nvml.so"
        self.start("quorum", "lattice-quorum")
        self.start("control", "lattice-control")
        self.environment["LATTICE_CONTEXT"] = context
        server = f"https://127.0.0.1:{ports['https']}"
        trust = ("--ca", "https/https-ca.pem", "--token-file", "ada.token")
        self.cli("admin", "context", "--server", server, *trust, "--out", context)
        self.until("the quorum to answer", lambda: self.answers("project", "create", PROJECTS[0], "--max-nodes", "4"))
        for project in PROJECTS[1:]:
            self.cli("project", "create", project, "--max-nodes", "4")
        uses = ("--ttl", "1h", "--uses", str(len(NODES)))
        self.cli("admin", "token", "create", "--role", "agent", *uses, "--out", "join.token")
        for node in NODES:
            shutil.copytree(ROOT / "fixtures/hosts" / node, at / "hosts" / node, symlinks=True)
            self.write(f"{node}.yaml", f"""node: {node}
listen: 127.0.0.1:{ports[node]}
data_dir: {at}/agent-{node}
control: ["127.0.0.1:{ports['mesh']}"]
join: {{token_file: {at}/join.token, quorum: ["{quorum}"]}}
topology: {{group: g0}}
gossip: {{interval_ms: 1000}}
probe: {{nvml: {{library: {library}}}, root: {at}/hosts/{node}}}
executor: {{run_as: {{uid: 65534, gid: 65534}}, working_dir: /}}
""")
            self.start(node, "lattice-agent", LATTICE_FAKE_NVML=str(at / "hosts" / node / "nvml.json"))
        self.until("the nodes", lambda: [one["status"] for one in self.json("node", "list")] == ["ready"] * len(NODES))

    def until(self, what, check, seconds=120):
        end = time.monotonic() + seconds
        while not check():
            if time.monotonic() > end:
                raise RuntimeError(f"timeout: {what}")
            time.sleep(0.3)

    def submit(self, project):
        return self.cli("submit", "--project", project, "--walltime", "2h", "--", "sleep", "7200").strip().split()[-1]

    def usage(self):
        """Hours by project and component, as `lattice usage` has them."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        hours = {}
        for project in PROJECTS:
            target = f"https://127.0.0.1:{self.ports['https']}/api/v1/tenants/{project}/usage?days=90"
            request = urllib.request.Request(target, headers={"Authorization": f"Bearer {TOKEN}"})
            with urllib.request.urlopen(request, context=context) as answer:
                used = json.load(answer)
            hours[project, "gpu_hours"], hours[project, "node_hours"] = used["gpu_hours_used"], used["node_hours_used"]
        return hours


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def pairs(text):
    return sorted(tuple(map(float, one.split(":"))) for one in text.split(",") if one)


class Clocks:
    """Clocks of the cluster and of Waldur: files of libfaketime with offsets from this program's clock."""

    def __init__(self, end, lead, skew, cluster_file, waldur_file):
        self.end, self.skew = end, skew
        self.cluster_file, self.waldur_file = cluster_file, waldur_file
        self.offset = end - lead - time.time()
        # Steps of the cluster's clock move neither Waldur's clock nor the schedule of this program.
        self.step = 0.0
        self.write()

    def write(self):
        self.cluster_file.write_text(f"{self.offset + self.step:+.3f}s\n")
        self.waldur_file.write_text(f"{self.offset + self.skew:+.3f}s\n")
        rc = Path("/etc/faketimerc")
        if rc.exists():
            rc.write_text(self.cluster_file.read_text())

    def since_end(self):
        return time.time() + self.offset - self.end


def main():
    options = arguments()
    if os.environ.get("MONTH_END_NAMESPACE") != "yes":
        os.environ["MONTH_END_NAMESPACE"] = "yes"
        os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv])
    found = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    library = required("FAKETIME_LIBRARY", "libfaketimeMT.so.1 of the package libfaketime", found[0] if found else None)
    folder = Path(options.out).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    end = calendar.timegm(datetime.datetime.fromisoformat(options.end).timetuple())
    waldur_clock = Path(required("WALDUR_CLOCK_FILE", "FAKETIME_TIMESTAMP_FILE of Waldur's process"))
    clocks = Clocks(end, options.setup + options.before, options.skew, folder / "cluster.clock", waldur_clock)
    private_mounts(library, clocks.cluster_file)
    url = required("WALDUR_URL", "for example http://127.0.0.1:58000/api/")
    proxy = Proxy(url, clocks.since_end)
    waldur = Waldur(url, required("WALDUR_TOKEN", "the token of a staff user"))
    cluster = Cluster(options, folder, proxy.url, clocks.cluster_file)
    log = open(folder / "run.log", "w")

    def note(text):
        line = f"{clocks.since_end():+8.1f} {text}"
        print(line, flush=True)
        print(line, file=log, flush=True)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        faults = run(options, clocks, proxy, waldur, cluster, note)
    finally:
        (folder / "changes.json").write_text(json.dumps(proxy.changes, indent=0))
        cluster.stop_all()
    sys.exit(1 if faults else 0)


def run(options, clocks, proxy, waldur, cluster, note):
    note(" ".join(sys.argv[1:]))
    cluster.set_up()
    note("cluster is ready")
    jobs = {project: cluster.submit(project) for project in PROJECTS if project != "late"}
    events = [
        (-options.before, "delay", lambda: setattr(proxy, "delay", options.delay)),
        # One job ends in the guard before the end, one begins in it, and one ends and is submitted again after the end.
        (-20, "cancel early", lambda: cluster.cli("cancel", jobs["early"])),
        (-15, "submit late", lambda: jobs.update(late=cluster.submit("late"))),
        (0, "usage at the end", lambda: at_end.update(cluster.usage())),
        (20, "cancel again", lambda: cluster.cli("cancel", jobs["again"])),
        (30, "submit again", lambda: jobs.update(again=cluster.submit("again"))),
        (options.after - 60, "cancel all", lambda: cluster.cli("cancel", *(jobs[of] for of in jobs if of != "early"))),
        (options.after - 60, "no delay", lambda: setattr(proxy, "delay", 0)),
    ]
    at_end = {}

    def change(**what):
        for name, value in what.items():
            setattr(clocks, name, value)
        clocks.write()

    events += [(at, f"skew {to:+}", lambda to=to: change(skew=to)) for at, to in pairs(options.jump)]
    events += [(at, f"step {by:+}", lambda by=by: change(step=clocks.step + by)) for at, by in pairs(options.step)]
    events.sort(key=lambda event: event[0])
    shown, done_at = None, None
    while events or clocks.since_end() < options.after or done_at == first_at:
        while events and clocks.since_end() >= events[0][0] - 0.05:
            at, name, act = events.pop(0)
            act()
            note(f"-- {name}")
        status = cluster.json("admin", "accounting", "status")
        lines = [f"{one['subject']}: {one['reason']}" for one in status["rejected"]]
        skew_s = round((status.get("clock_skew_ms") or 0) / 1000)
        text = json.dumps(dict(failure=status.get("failure"), skew_s=skew_s, rejected=lines))
        if text != shown:
            note(f"status {text}")
            shown = text
        # The run ends with a round after the last change.
        done_at = status.get("complete_at")
        if events or clocks.since_end() < options.after:
            first_at = done_at
        wait = events[0][0] - 0.03 - clocks.since_end() if events else 1
        time.sleep(max(0.02, min(1, wait)))
    rejected = cluster.json("admin", "accounting", "status")["rejected"]
    lines = {one["subject"] for one in rejected if "not bookable" in one["reason"]}
    faults = table(waldur, cluster, at_end, lines, options, note)
    faults += close_month(cluster, options, note)
    note(f"{proxy.calls} calls; " + ("; ".join(faults) if faults else "no fault"))
    return faults


def month_names(end):
    """Months before and after the end; the same where no month ends."""
    last = datetime.datetime.fromisoformat(end) - datetime.timedelta(seconds=1)
    return last.strftime("%Y-%m"), end[:7]


def table(waldur, cluster, at_end, lines, options, note):
    """Prints the totals. Returns those of which neither Waldur nor a line of the status has the usage."""
    faults = []
    usages, items = waldur.totals(cluster.name)
    now = cluster.usage()
    months = month_names(options.end)
    note("usage rows and invoice items in Waldur, `lattice usage`, difference")
    for project in PROJECTS:
        for month in sorted(set(months)):
            for component in ("gpu_hours", "node_hours"):
                used = at_end.get((project, component), 0)
                if months[0] == months[1]:
                    used = now[project, component]
                elif month == months[1]:
                    used = now[project, component] - used
                row, item = (of.get((project, month, component), 0) for of in (usages, items))
                has_line = f"usage {project}@default {month}" in lines
                note(f"TOTAL {project:7} {month} {component:10} rows {row:6.2f} items {item:6.2f} usage {used:7.4f} "
                     f"difference {row - used:+8.4f} {'line' if has_line else ''}")
                # Rows above the usage are never right; a line explains missing usage of the ended month alone.
                missing = used - row
                is_right = abs(missing) <= TOLERANCE_H or (missing > 0 and has_line and month < months[1])
                if not is_right or abs(row - item) > 0.001:
                    faults.append(f"{project} {month} {component}: rows {row:.2f}, items {item:.2f}, usage {used:.4f}")
    return faults


def close_month(cluster, options, note):
    """Ends the lines of the month with the one command. Returns the lines that remain, or come back after a restart."""
    last, _ = month_names(options.end)
    since, until = f"{last}-01", f"{options.end}Z"
    for command in (
        ("admin", "accounting", "status"),
        ("admin", "accounting", "reconcile", "--since", since, "--until", until, "--dry-run"),
        ("admin", "accounting", "reconcile", "--since", since, "--until", until, "--accept"),
        ("admin", "accounting", "status"),
    ):
        note(f"$ lattice {' '.join(command)}\n{cluster.cli(*command, check=False)}")
    faults = remaining_lines(cluster, "after --accept")
    cluster.stop("control")
    cluster.start("control", "lattice-control")
    note("control restarted")

    def has_round():
        try:
            return cluster.json("admin", "accounting", "status").get("complete_at")
        except (RuntimeError, ValueError):
            return False

    cluster.until("a round after the restart", has_round, 180)
    note(f"$ lattice admin accounting status\n{cluster.cli('admin', 'accounting', 'status', check=False)}")
    return faults + remaining_lines(cluster, "after a restart")


def remaining_lines(cluster, when):
    rejected = cluster.json("admin", "accounting", "status")["rejected"]
    return [f"{when}: {one['subject']}: {one['reason']}" for one in rejected]


main()
