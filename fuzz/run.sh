#!/usr/bin/env bash
# Runs the coverage-guided target for so many seconds on the stable toolchain: run.sh [SECONDS] [ARGUMENTS OF LIBFUZZER...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
seconds="${1:-600}"
shift || true
host="$(rustc -vV | sed -n 's/^host: //p')"
# Counters at every edge, comparisons traced; only the target is built so, not build scripts (hence --target).
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
cargo build --release --features libfuzzer --bin metrics_page --target "$host"
binary="${CARGO_TARGET_DIR:-target}/$host/release/metrics_page"
if [[ "$seconds" == 0 ]]; then
  exec "$binary" "$@"
fi
mkdir -p corpus
# Pieces of real pages: whole ones are longer than what the fuzzer tries.
for page in ../koi-bench/fixtures/*.metrics.txt "${KOI_SHARED:-/nowhere}"/data/metrics_captures/*.prom; do
  if [[ -f "$page" ]]; then
    split -b 2000 -a 3 "$page" "corpus/$(basename "$page")."
  fi
done
exec "$binary" corpus -max_total_time="$seconds" -max_len=4096 -dict=metrics.dict -print_final_stats=1 "$@"
