# Recipes. Checks of each change: `.ci/run`. Long ones: `.ci/long`.

# Format, lints, tests.
check:
    bash .ci/run

test:
    cargo test --workspace

# Licences, duplicates and sources of all dependencies.
deny:
    cargo deny check bans licenses sources

# The four programs as sites install them, in `target/dist`: stripped, with their line tables in `NAME.debug`.
dist:
    cargo build --profile dist -p lattice-cli -p lattice-quorum -p lattice-control -p lattice-agent
    for program in lattice lattice-quorum lattice-control lattice-agent; do \
        objcopy --only-keep-debug target/dist/$program target/dist/$program.debug && \
        strip --strip-all target/dist/$program && \
        objcopy --add-gnu-debuglink=target/dist/$program.debug target/dist/$program || exit 1; \
    done

# Write the expected outputs of golden tests anew; review the diff.
bless:
    LATTICE_BLESS=1 cargo test -p lattice-hwprobe
    LATTICE_BLESS=1 cargo test -p lattice-tests --test it role_matrix::
    LATTICE_BLESS=1 cargo test -p lattice-tests --test it language::
    LATTICE_BLESS=1 cargo test -p lattice-control --lib rbac
    LATTICE_BLESS=1 cargo test -p lattice-quorum --lib golden -- --test-threads=1

# Every route and call by every kind of caller, asked of a real port, and the table it must be.
rbac:
    cargo test -p lattice-control --lib rbac -- --nocapture
    cat control/src/http/tests/rbac/matrix.txt

# Who may call what, what is killed when, and who was connected before: the tables.
matrices:
    cargo test -p lattice-tests --test it -- --nocapture role_matrix:: restart_matrix::
    cargo test -p lattice-agent --test processes steps:: -- --nocapture
    cargo test -p lattice-mesh --test it resumption:: -- --nocapture

# Cut half of the agents off for so long, in network namespaces; needs root.
partition cut_s="120":
    LATTICE_CUT_S={{cut_s}} cargo test --release -p lattice-tests --test netns -- --nocapture partition:: split:: --skip quorum_faults::

# Kill the leader of three processes under 64 writers, so often.
chaos kills="20":
    LATTICE_KILLS={{kills}} cargo test --release -p lattice-quorum --test processes kill_leader:: -- --nocapture

# Writes a second with 1, 16, 64 and 256 writers on three member processes.
load:
    cargo run --profile dist -p lattice-quorum --example beside_etcd -- speed --alone

# The same beside three members of etcd (Debian: etcd-server), in turn.
etcd seconds="3" rounds="5":
    cargo run --profile dist -p lattice-quorum --example beside_etcd -- speed --seconds {{seconds}} --rounds {{rounds}}

# Kill the leader so often, ours and etcd's in turn: how long until a write is accepted again.
kills kills="20":
    cargo run --profile dist -p lattice-quorum --example beside_etcd -- kills --kills {{kills}}

# Full load for so long: an election, or it ends well.
steady minutes="30":
    cargo run --profile dist -p lattice-quorum --example beside_etcd -- steady --minutes {{minutes}}

# What may befall quorum members, process by process; some of it needs root.
faults:
    cargo test -p lattice-tests --test netns quorum_faults:: -- --nocapture --test-threads 2

# One seed of the simulated quorum, and everything that happens in it.
sim seed:
    cargo run --release -p lattice-quorum-sim --features paused-clock -- {{seed}}

# So many seeds, and one table of what they did.
sims count="10000" first="0":
    cargo run --release -p lattice-quorum-sim --features paused-clock -- {{first}} --seeds {{count}}

# So many simulated days of everything that moves work at once, and one table of what they did.
days count="1000" first="0":
    LATTICE_DAYS={{count}} LATTICE_DAYS_FROM={{first}} LATTICE_DAY_HOURS=24 cargo test --release -p lattice-control --lib what_must_hold_holds -- --nocapture

# From submit to running process, on the demo that runs now (its context file).
latency context count="100":
    cargo run --release -p lattice-client --example submit_latency -- {{context}} atlas/physics/simulation {{count}}

# A graph and an array of so many that do nothing, on so many agents: time, quorum writes, memory; what it was
# before is in tests/FIGURES.md. Five minutes after the last, or with TMPDIR=/dev/shm: see there why.
many members="1000" elements="10000" agents="12" script_kib="0":
    LATTICE_MEMBERS={{members}} LATTICE_ELEMENTS={{elements}} LATTICE_AGENTS={{agents}} \
        LATTICE_SCRIPT_KIB={{script_kib}} cargo test --release -p lattice-tests --test it many:: -- --nocapture

# From submit of a higher class to its process, while other work writes a checkpoint of known length first.
making-room write_ms="0 1000 5000" rounds="5":
    LATTICE_WRITE_MS="{{write_ms}}" LATTICE_ROUNDS={{rounds}} \
        cargo test --release -p lattice-tests --test it making_room:: -- --nocapture

# A member with so many ended allocations behind it: time to serve, memory, disk, an old one.
history allocations="1000000":
    cargo build --profile dist -p lattice-quorum --bin lattice-quorum
    cargo run --profile dist -p lattice-quorum --example history -- {{allocations}}

# What one agent costs in a cell.
agent-cost members="64" seconds="300":
    cargo build --profile dist -p lattice-agent
    cargo run --profile dist -p lattice-agent --example cost -- {{members}} {{seconds}}

# What a limit check costs, at 3,400 projects.
limits:
    cargo bench --profile dist -p lattice-quorum-state --bench limits

# One scheduling cycle, cold and warm, as large as a site may be.
cycle *arguments:
    cargo run --profile dist -p lattice-placement --example cycle -- {{arguments}}

# The decisions that move work beside one cycle.
moves *arguments:
    cargo run --profile dist -p lattice-placement --example moves -- {{arguments}}

# Every row of the table in control/placement/FIGURES.md.
cycles:
    cargo build --profile dist -p lattice-placement --example cycle
    bash control/placement/examples/cycles.sh

# Instructions of each row (Debian: valgrind): the same on a busy machine as on a quiet one.
instructions:
    cargo build --profile dist -p lattice-placement --example cycle
    bash control/placement/examples/instructions.sh

# Slurm's backfill cycle beside ours (Debian: slurm-wlm; as root).
beside-slurm *arguments:
    cargo run --profile dist -p lattice-placement --example beside_slurm -- {{arguments}}

# What a ledger costs, and a question with so many allocations behind it.
ledger allocations="1000000":
    cargo run --profile dist -p lattice-accounting --example ledger -- {{allocations}}

# Accounting killed with SIGKILL at every step, in so many clusters: what stands in Waldur is what was used.
crash-matrix clusters="1000":
    LATTICE_CRASHES={{clusters}} cargo test -p lattice-accounting --test it crash:: -- --nocapture

# Generic clients: every call of gRPC by reflection, and REST by schemathesis over the OpenAPI document.
generic-clients examples="100":
    cargo build -p lattice-cli
    python3 -m venv target/generic-clients
    target/generic-clients/bin/pip install --quiet --requirement control/tests/generic_clients.txt
    target/generic-clients/bin/python control/tests/generic_clients.py --examples {{examples}}

# Waldur refuses connections, or hangs: how long scheduling cycles take meanwhile, as a ratio.
outage phase_s="20" rounds="3":
    LATTICE_PHASE_S={{phase_s}} LATTICE_ROUNDS={{rounds}} cargo test --release -p lattice-tests --test it outage:: -- --nocapture

# Submits a second with so many nodes registered and so many allocations pending.
submits nodes="10000" pending="10000" submits="20000" writers="64":
    LATTICE_NODES={{nodes}} LATTICE_PENDING={{pending}} LATTICE_SUBMITS={{submits}} LATTICE_WRITERS={{writers}} \
        cargo test --release -p lattice-tests --test it submits:: -- --nocapture

# What a replay costs: jobs a second and bytes a job, by EASY and by the product.
replay-speed *arguments:
    cargo run --profile dist -p lattice-replay --example speed -- {{arguments}}

# A thousand weight vectors over a hundred thousand jobs: one table, and how long that took.
replay-sweep *arguments:
    cargo build --profile dist -p lattice-replay --example speed
    cargo build --profile dist -p lattice-cli
    bash control/replay/examples/sweep.sh {{arguments}}

# Plans of so many small systems beside trying everything.
oracle systems="10000":
    LATTICE_ORACLE_SYSTEMS={{systems}} cargo test --release -p lattice-placement --test it small_systems:: -- --nocapture

# What every BMC tree and every GPU capture gives, beside what its machine is known to be.
captures:
    cargo run -p lattice-redfish --example trees
    cargo test -p lattice-hwprobe --test child gpu_captures:: -- --nocapture

# One firmware version changes: how long until each part of the cluster knows.
firmware:
    cargo test --release -p lattice-tests --test it firmware:: -- --nocapture

# A GPU driver, a BMC, a file and a disk fail in silence at once: what is said, and how soon.
silence:
    cargo test --release -p lattice-tests --test it silence:: -- --nocapture

# A GPU fails while its node works: drained on its own word, and back only when it is verified.
health-drain:
    cargo test --release -p lattice-tests --test it health_drain:: -- --nocapture

# A full probe of the H100 host in its own process, and the memory of the agent over a thousand.
bench-probe:
    cargo build --profile dist -p lattice-fake-nvml
    cargo run --profile dist -p lattice-hwprobe --example bench_probe -- --rounds 200 --memory-rounds 1000

# So many BMCs asked for their power.
bmc-sweep bmcs="500":
    cargo run --profile dist -p lattice-redfish --example sweep -- --bmcs {{bmcs}}

# Parsers of text, preimages and Redfish, on damaged input, and the planner on numbers nobody means, for longer
# than the tests do.
fuzz cases="100000":
    LATTICE_FUZZ_CASES={{cases}} cargo test --release -p lattice-hwprobe --test it fuzz::
    LATTICE_FUZZ_CASES={{cases}} cargo test --release -p lattice-redfish --test it fuzz::

# Properties of the solver and of the state machine at so many times their usual cases.
properties factor="25":
    LATTICE_CASES_FACTOR={{factor}} cargo test --release -p lattice-placement --lib
    LATTICE_CASES_FACTOR={{factor}} cargo test --release -p lattice-quorum-state --test it

# Every file of two captured hosts, altered one by one: only the classes change whose keys do.
inclusion:
    LATTICE_ALL_FILES=1 cargo test -p lattice-hwprobe --test child inclusion::
