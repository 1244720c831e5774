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
