#!/usr/bin/env bash
# usage: system_packages.sh PYTHON [PACKAGE...]
# Installs the Debian packages that are missing for SGLang on a CPU: it compiles a page-hash extension
# (g++, ninja, OpenSSL and Python headers) and lives in a virtual environment; what Mooncake's wheel links to
# without bringing it; and a server for the valkey tier. Further packages are named after their command. Says so where it may not.
set -euo pipefail
python=${1:?usage: system_packages.sh PYTHON [PACKAGE...]}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "sgkv needs Python 3.11 or newer, $python is $("$python" -V 2>&1). Name another: make PYTHON=python3.12 ..." >&2
  exit 1
}

missing=()
need() { "${@:2}" >/dev/null 2>&1 || missing+=("$1"); }

need g++ command -v g++
need ninja-build command -v ninja
need libssl-dev test -e /usr/include/openssl/sha.h
need python3-venv "$python" -c 'import ensurepip, venv'
need python3-dev test -e "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"
loads() { "$python" -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$1"; }
need libibverbs1 loads libibverbs.so.1
need libnuma1 loads libnuma.so.1
need libcurl4 loads libcurl.so.4
has_server() { command -v valkey-server || command -v redis-server; }
if apt-cache show valkey-server >/dev/null 2>&1; then need valkey-server has_server; else need redis-server has_server; fi
for more in "${@:2}"; do need "$more" command -v "$more"; done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ]; then as_root=(); elif sudo -n true 2>/dev/null; then as_root=(sudo -n); else as_root=(false); fi
if ! command -v apt-get >/dev/null || [ "${as_root[*]-}" = false ]; then
  echo "Missing system packages (Debian names): ${missing[*]}. Install them, then run make again." >&2
  exit 1
fi
echo "installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
