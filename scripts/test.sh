#!/usr/bin/env bash
# All tests, from a fresh clone on: set-up, the binaries that process tests start, then cargo test.
# Runs as root and as anybody else; arguments go to cargo test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
# One resolution of features for binaries and tests, so that nothing is compiled twice.
cargo build --workspace --bins --tests
exec cargo test --workspace "$@"
