# Recipes; .ci/run calls the same commands.

# Format, lints, tests.
check:
    bash .ci/run

test:
    cargo test --workspace

# Licences, duplicates and sources of all dependencies.
deny:
    cargo deny check bans licenses sources

# Write the expected outputs of golden tests anew; review the diff.
bless:
    LATTICE_BLESS=1 cargo test -p lattice-hwprobe

# Kill the leader of three processes under 64 writers, so often.
chaos kills="20":
    LATTICE_KILLS={{kills}} cargo test --release -p lattice-quorum --test kill_leader -- --nocapture

# Commands a second on three member processes.
load:
    cargo run --release -p lattice-quorum --example load

# From submit to running process, on the demo that runs now (its context file).
latency context count="100":
    cargo run --release -p lattice-client --example submit_latency -- {{context}} atlas/physics/simulation {{count}}

# What one agent costs in a cell.
agent-cost members="64" seconds="300":
    cargo build --release -p lattice-agent
    cargo run --release -p lattice-agent --example cost -- {{members}} {{seconds}}

# One scheduling cycle.
bench:
    cargo bench -p lattice-placement
