#!/usr/bin/env bash
# The whole system on simulated GPUs from a fresh clone: set-up, release build, dev cluster.
# Arguments go to `koi up`, e.g. --detach.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

pg="$(scripts/setup.sh --pg-bin)"
# The server looks by itself everywhere but in root's wheel beside another data directory.
if [[ "$pg" == /var/lib/koi/* ]]; then export KOI_PG_BIN="$pg"; fi
cargo build --release --locked
exec "${CARGO_TARGET_DIR:-target}/release/koi" up "$@"
