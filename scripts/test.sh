#!/usr/bin/env bash
# All tests, from a fresh clone on: set-up, the binaries that process tests start, then cargo test.
# Runs as root and as anybody else; arguments go to cargo test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
# Every test has a data directory of its own, so the one place of a wheel for root must be named.
pg="$(scripts/setup.sh --pg-bin)"
if [[ "$pg" == /var/lib/koi/* ]]; then export KOI_PG_BIN="$pg"; fi

# One resolution of features for binaries and tests, so that nothing is compiled twice.
cargo build --workspace --bins --tests
# Tests that start processes take these binaries; building one alone would resolve features anew.
export KOI_BIN_DIR="${CARGO_TARGET_DIR:-$PWD/target}/debug"
exec cargo test --workspace "$@"
