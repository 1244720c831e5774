# Recipes. Checks of each change: `.ci/run`. Long checks: `.ci/long`.

# Format, lints, tests.
check:
    bash .ci/run

test:
    cargo test --workspace

# Check licences, duplicates and sources of all dependencies.
deny:
    cargo deny check bans licenses sources

# Build the four programs as sites install them, in `target/dist`: stripped, with line tables in `NAME.debug`.
dist:
    cargo build --profile dist -p lattice-cli -p lattice-quorum -p lattice-control -p lattice-agent
    for program in lattice lattice-quorum lattice-control lattice-agent; do \
        objcopy --only-keep-debug target/dist/$program target/dist/$program.debug && \
        strip --strip-all target/dist/$program && \
        objcopy --add-gnu-debuglink=target/dist/$program.debug target/dist/$program || exit 1; \
    done

# Regenerate the expected outputs of golden tests; review the diff.
bless:
    LATTICE_BLESS=1 cargo test -p lattice-conformance -p lattice-hwprobe
    LATTICE_BLESS=1 cargo test -p lattice-conformance
    LATTICE_BLESS=1 cargo test -p lattice-tests --test it role_matrix::
    LATTICE_BLESS=1 cargo test -p lattice-tests --test it language::
    LATTICE_BLESS=1 cargo test -p lattice-tests --test it tidy::map::
    LATTICE_BLESS=1 cargo test -p lattice-http --lib rbac
    LATTICE_BLESS=1 cargo test -p lattice-quorum --lib golden -- --test-threads=1

# Role matrix: every route and call, requested by every kind of caller at a real port, and the expected table.
rbac:
    cargo test -p lattice-http --lib rbac -- --nocapture
    cat control/http/src/tests/rbac/matrix.txt

# Tables: permissions per role, results of kills at each step, resumption of connections.
matrices:
    cargo test -p lattice-tests --test it -- --nocapture role_matrix:: restart_matrix::
    cargo test -p lattice-agent --test processes steps:: -- --nocapture
    cargo test -p lattice-mesh --test it resumption:: -- --nocapture

# Cut off half of the agents for `cut_s` seconds, in network namespaces; needs root.
partition cut_s="120":
    LATTICE_CUT_S={{cut_s}} cargo test --release -p lattice-tests --test netns -- --nocapture partition:: split:: --skip quorum_faults::

# Kill the leader of three member processes `kills` times, under 64 writers.
chaos kills="20":
    LATTICE_KILLS={{kills}} cargo test --release -p lattice-quorum --test processes kill_leader:: -- --nocapture

# Writes per second with 1, 16, 64 and 256 writers on three member processes.
load:
    cargo run --profile dist -p lattice-quorum --example etcd_comparison -- speed --alone

# The same for Lattice and three members of etcd (Debian: etcd-server), in turn.
etcd seconds="3" rounds="5":
    cargo run --profile dist -p lattice-quorum --example etcd_comparison -- speed --seconds {{seconds}} --rounds {{rounds}}

# Kill the leader `kills` times, of Lattice and etcd in turn: time until a write is accepted again.
kills kills="20":
    cargo run --profile dist -p lattice-quorum --example etcd_comparison -- kills --kills {{kills}}

# Full load for `minutes` minutes; an election is a failure.
steady minutes="30":
    cargo run --profile dist -p lattice-quorum --example etcd_comparison -- steady --minutes {{minutes}}

# Quorum fault-injection tests on member processes; some need root.
faults:
    cargo test -p lattice-tests --test netns quorum_faults:: -- --nocapture --test-threads 2

# One seed of the simulated quorum, with all its events.
sim seed:
    cargo run --release -p lattice-quorum-sim --features paused-clock -- {{seed}}

# `count` seeds of the simulated quorum, and one table of the results.
sims count="10000" first="0":
    cargo run --release -p lattice-quorum-sim --features paused-clock -- {{first}} --seeds {{count}}

# `count` simulated days with preemption, lending, checkpoints and scaling together, and one table of the results.
days count="1000" first="0":
    LATTICE_DAYS={{count}} LATTICE_DAYS_FROM={{first}} LATTICE_DAY_HOURS=24 cargo test --release -p lattice-engine --lib what_must_hold_holds -- --nocapture

# Latency from submit to running process, on a running demo (its context file).
latency context count="100":
    cargo run --release -p lattice-client --example submit_latency -- {{context}} atlas/physics/simulation {{count}}

# tests/FIGURES.md has earlier results, and the reason to wait five minutes after a run or to set TMPDIR=/dev/shm.
# A DAG and an array with this number of empty jobs, on this number of agents: time, quorum writes, memory.
many members="1000" elements="10000" agents="12" script_kib="0":
    LATTICE_MEMBERS={{members}} LATTICE_ELEMENTS={{elements}} LATTICE_AGENTS={{agents}} \
        LATTICE_SCRIPT_KIB={{script_kib}} cargo test --release -p lattice-tests --test it many:: -- --nocapture

# Latency of a preemption: from submit to process, while the victim first writes a checkpoint of known duration.
making-room write_ms="0 1000 5000" rounds="5":
    LATTICE_WRITE_MS="{{write_ms}}" LATTICE_ROUNDS={{rounds}} \
        cargo test --release -p lattice-tests --test it making_room:: -- --nocapture

# A member with this number of ended allocations: time to serve, memory, disk, query of an old allocation.
history allocations="1000000":
    cargo build --profile dist -p lattice-quorum --bin lattice-quorum
    cargo run --profile dist -p lattice-quorum --example history -- {{allocations}}

# Cost of one agent in a cell.
agent-cost members="64" seconds="300":
    cargo build --profile dist -p lattice-agent
    cargo run --profile dist -p lattice-agent --example cost -- {{members}} {{seconds}}

# Cost of a limit check, at 3,400 projects.
limits:
    cargo bench --profile dist -p lattice-quorum-state --bench limits

# Cost of one scheduling cycle, cold and warm, at the size of the largest sites.
cycle *arguments:
    cargo run --profile dist -p lattice-placement --example cycle -- {{arguments}}

# Cost of preemption, lending and scaling decisions, compared with one scheduling cycle.
moves *arguments:
    cargo run --profile dist -p lattice-placement --example moves -- {{arguments}}

# Every row of the table in control/placement/FIGURES.md.
cycles:
    cargo build --profile dist -p lattice-placement --example cycle
    bash control/placement/examples/cycles.sh

# Instructions of each row (Debian: valgrind): equal on a busy machine and an idle one.
instructions:
    cargo build --profile dist -p lattice-placement --example cycle
    bash control/placement/examples/instructions.sh

# Slurm's backfill cycle compared with Lattice's (Debian: slurm-wlm; as root).
slurm-comparison *arguments:
    cargo run --profile dist -p lattice-placement --example slurm_comparison -- {{arguments}}

# Cost of a ledger, and of a query, with this number of allocations.
ledger allocations="1000000":
    cargo run --profile dist -p lattice-ledger --example ledger -- {{allocations}}

# Accounting killed with SIGKILL at every step, in `clusters` clusters: usage in Waldur must equal actual usage.
crash-matrix clusters="1000":
    LATTICE_CRASHES={{clusters}} cargo test -p lattice-waldur --test it crash:: -- --nocapture

# The end of a month with a real Waldur under libfaketime, as root; see control/waldur/tests/real/README.md.
waldur-month-end *options:
    cargo build -p lattice-cli -p lattice-quorum -p lattice-control -p lattice-agent -p lattice-fake-nvml
    python3 control/waldur/tests/real/month_end.py {{options}}

# Waldur's contract: the fixture's answers compared with the recorded ones of a real Waldur. With the URL of a real one
# (`just waldur-contract http://127.0.0.1:58000`, WALDUR_STAFF_TOKEN set): its answers.
waldur-contract *arguments:
    cargo run -p lattice-fake-waldur --example contract -- {{arguments}}

# Rounds of accounting with 1,000 resources: calls and seconds by the time of a call; memory and journal in an outage.
waldur-load *arguments:
    cargo run --release -p lattice-waldur --example load -- {{arguments}}

# Generic clients: every call of gRPC by reflection, and REST by schemathesis over the OpenAPI document.
generic-clients examples="100":
    cargo build -p lattice-cli
    python3 -m venv target/generic-clients
    target/generic-clients/bin/pip install --quiet --requirement control/tests/generic_clients.txt
    target/generic-clients/bin/python control/tests/generic_clients.py --examples {{examples}}

# Waldur refuses connections, or hangs: duration of scheduling cycles meanwhile, as a ratio.
outage phase_s="20" rounds="3":
    LATTICE_PHASE_S={{phase_s}} LATTICE_ROUNDS={{rounds}} cargo test --release -p lattice-tests --test it outage:: -- --nocapture

# Submits per second with `nodes` registered nodes and `pending` pending allocations.
submits nodes="10000" pending="10000" submits="20000" writers="64":
    LATTICE_NODES={{nodes}} LATTICE_PENDING={{pending}} LATTICE_SUBMITS={{submits}} LATTICE_WRITERS={{writers}} \
        cargo test --release -p lattice-tests --test it submits:: -- --nocapture

# Cost of a replay: jobs per second and bytes per job, for EASY and for Lattice.
replay-speed *arguments:
    cargo run --profile dist -p lattice-replay --example speed -- {{arguments}}

# A thousand weight vectors over a hundred thousand jobs: one table, and the run time.
replay-sweep *arguments:
    cargo build --profile dist -p lattice-replay --example speed
    cargo build --profile dist -p lattice-cli
    bash control/replay/examples/sweep.sh {{arguments}}

# Plans of `systems` small systems, compared with exhaustive search.
oracle systems="10000":
    LATTICE_ORACLE_SYSTEMS={{systems}} cargo test --release -p lattice-placement --test it small_systems:: -- --nocapture

# Results of every BMC tree and every GPU capture, compared with the known machine.
captures:
    cargo run -p lattice-redfish --example trees
    cargo test -p lattice-hwprobe --test child gpu_captures:: -- --nocapture

# One firmware version changes: time until each part of the cluster has the new version.
firmware:
    cargo test --release -p lattice-tests --test it firmware:: -- --nocapture

# A GPU driver, a BMC, a file and a disk fail silently together: reports, and time until each report.
silence:
    cargo test --release -p lattice-tests --test it silence:: -- --nocapture

# SIGKILL of an agent until it is suspect in the REST API, by step.
suspicion agents="64" kills="30":
    LATTICE_AGENTS={{agents}} LATTICE_KILLS={{kills}} \
        cargo test --release -p lattice-tests --test it suspicion:: -- --nocapture

# A large demo: seconds from start to ready, memory by kind of process, and the figures by which the demo refuses nodes.
demo-scale nodes="200" run_s="45":
    cargo build --profile dist -p lattice-cli
    python3 control/cli/tests/demo_scale.py --nodes {{nodes}} --run-s {{run_s}}

# A GPU fails on a busy node: the node is drained on its own report, and returns only after verification.
health-drain:
    cargo test --release -p lattice-tests --test it health_drain:: -- --nocapture

# A full probe of the H100 host in a separate process, and the memory of the agent over a thousand probes.
bench-probe:
    cargo build --profile dist -p lattice-fake-nvml
    cargo run --profile dist -p lattice-hwprobe --example bench_probe -- --rounds 200 --memory-rounds 1000

# Power readings from `bmcs` BMCs.
bmc-sweep bmcs="500":
    cargo run --profile dist -p lattice-redfish --example sweep -- --bmcs {{bmcs}}

# Fuzzing with more cases than the tests: parsers of text, preimages and Redfish, on damaged input.
fuzz cases="100000":
    LATTICE_FUZZ_CASES={{cases}} cargo test --release -p lattice-hwprobe --test it fuzz::
    LATTICE_FUZZ_CASES={{cases}} cargo test --release -p lattice-redfish --test it fuzz::

# Property tests of the solver and of the state machine with `factor` times the usual cases.
properties factor="25":
    LATTICE_CASES_FACTOR={{factor}} cargo test --release -p lattice-placement --lib
    LATTICE_CASES_FACTOR={{factor}} cargo test --release -p lattice-quorum-state --test it

# Every file of two captured hosts, altered one by one: only classes with changed keys may change.
inclusion:
    LATTICE_ALL_FILES=1 cargo test -p lattice-hwprobe --test child inclusion::
