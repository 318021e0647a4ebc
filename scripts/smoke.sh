#!/usr/bin/env bash
# A dev cluster from start to end with the debug binaries that are there: three jobs run, one explanation is given,
# and after `koi down` no process of the cluster is left. Builds nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly BIN="${CARGO_TARGET_DIR:-target}/debug"
readonly JOBS_WANTED=3
readonly RUNNING_WITHIN_S="${KOI_SMOKE_RUNNING_S:-60}"
readonly EXPLAINED_WITHIN_S="${KOI_SMOKE_EXPLAIN_S:-60}"
readonly GONE_WITHIN_S=10

# Short and reachable for the user that runs the database: socket paths are limited to about 100 bytes.
data="$(mktemp -d /tmp/koi-smoke.XXXXXX)"
chmod 755 "$data"
export KOI_DATA_DIR="$data"
cluster=''

# This data directory is not the one beside which root keeps a wheel.
pg="$(scripts/setup.sh --pg-bin)"
if [[ "$pg" == /var/lib/koi/* ]]; then export KOI_PG_BIN="$pg"; fi

# Pids of processes that have KOI_CLUSTER_ID=$1 in their environment.
processes_of() {
  local environ pid
  for environ in /proc/[0-9]*/environ; do
    pid="${environ#/proc/}"
    pid="${pid%/environ}"
    { tr '\0' '\n' <"$environ" | grep -qxF "KOI_CLUSTER_ID=$1"; } 2>/dev/null && echo "$pid"
  done
  return 0
}

# The cluster id of a process that was started for our data directory.
cluster_id() {
  local environ pid
  for environ in /proc/[0-9]*/environ; do
    pid="${environ#/proc/}"
    pid="${pid%/environ}"
    { tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF "$data"; } 2>/dev/null || continue
    { tr '\0' '\n' <"$environ" | sed -n 's/^KOI_CLUSTER_ID=//p'; } 2>/dev/null
  done | sort -u | head -n 1
}

finish() {
  local status=$?
  trap - EXIT
  "$BIN/koi" down >/dev/null 2>&1 || true
  if [[ -n "$cluster" ]]; then
    # shellcheck disable=SC2046 # one word per pid
    kill -9 $(processes_of "$cluster") 2>/dev/null || true
  fi
  if [[ "$status" == 0 ]]; then
    rm -rf "$data"
  else
    echo "smoke: failed; data and logs are in $data" >&2
    tail -n 20 "$data"/logs/*.log >&2 2>/dev/null || true
  fi
  exit "$status"
}
trap finish EXIT

fail() {
  echo "smoke: $*" >&2
  exit 1
}

# Seconds since the cluster was started.
elapsed() {
  echo $((SECONDS - started))
}

running_jobs() {
  "$BIN/koi" jobs -o json 2>/dev/null | tr ',{' '\n\n' | grep -cE '^ *"state": *"running"' || true
}

# Tries a command every second until it succeeds, $1 seconds long.
within() {
  local limit=$(($1 + SECONDS))
  shift
  until "$@"; do
    [[ $SECONDS -lt $limit ]] || return 1
    sleep 1
  done
}

enough_run() {
  [[ "$(running_jobs)" -ge $JOBS_WANTED ]]
}

explains() {
  "$BIN/koi" explain chat >"$data/explain.txt" 2>&1 && grep -q '[^[:space:]]' "$data/explain.txt"
}

nothing_left() {
  [[ -z "$(processes_of "$cluster")" ]]
}

for program in koi koi-server koi-agent koi-shim koi-engine-sim; do
  [[ -x "$BIN/$program" ]] || fail "$BIN/$program is missing; type: cargo build --workspace --bins"
done

started=$SECONDS
"$BIN/koi" up --detach --wait-s "$RUNNING_WITHIN_S"
cluster="$(cluster_id)"
[[ -n "$cluster" ]] || fail "no process of the cluster carries KOI_CLUSTER_ID"
within "$RUNNING_WITHIN_S" enough_run || fail "$(running_jobs) jobs run after $(elapsed) s, wanted $JOBS_WANTED"
echo "smoke: $(running_jobs) jobs run after $(elapsed) s"
within "$EXPLAINED_WITHIN_S" explains || fail "koi explain chat did not answer: $(head -n 5 "$data/explain.txt")"
echo "smoke: koi explain chat answered after $(elapsed) s"
"$BIN/koi" down
within $GONE_WITHIN_S nothing_left || fail "processes left after koi down: $(processes_of "$cluster" | tr '\n' ' ')"
echo "smoke: nothing left after $(elapsed) s"
