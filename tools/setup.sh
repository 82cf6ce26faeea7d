#!/usr/bin/env bash
# Brings what draftmill needs to be built and run. Idempotent: what is there already is left alone.
#
#   tools/setup.sh [text|cpu|test|gpu]        default: cpu
#
#   text   Debian packages only: ingest, tokenize, vocab_map, status, verify, inspect, export
#   cpu    and libtorch for the CPU in .venv (the torch wheel without its dependencies, about 550 MB to fetch)
#   test   and torch with all its dependencies and the Python originals that tests compare with (about 5 GB)
#   gpu    torch with its CUDA libraries and the cuDNN frontend's headers; asks for nvcc 13.0
#
# Exit: 0 everything is there; 2 something is missing that this user may not install (the command is printed); 1 failed.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly kDebianPackages=(
  g++ cmake ninja-build pkg-config ccache git make python3 python3-venv sqlite3 zstd ca-certificates
  libtbb-dev libyaml-cpp-dev libsqlite3-dev libspdlog-dev libfmt-dev libcli11-dev libsimdjson-dev libpcre2-dev
  libutf8proc-dev libxxhash-dev libzstd-dev zlib1g-dev libexpected-dev
  libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev nlohmann-json3-dev
)
readonly kMinPython="3.11"
readonly kCudaRelease="13.0"

say() { echo "setup: $*" >&2; }

usage() {
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

missing_packages() {
  local installed
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${kDebianPackages[@]}" 2>/dev/null |
    awk '$2 == "installed" {print $1}') || true
  comm -23 <(printf '%s\n' "${kDebianPackages[@]}" | sort) <(sort <<<"$installed")
}

# Prints the command prefix with which packages can be installed; fails where this user may not.
privilege_prefix() {
  if [[ $(id -u) == 0 ]]; then
    echo ""
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    echo "sudo -n"
  else
    return 1
  fi
}

install_debian_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "this system has no dpkg; install what these Debian 12 packages hold, then run this again:"
    say "  ${kDebianPackages[*]}"
    exit 2
  fi
  local missing prefix
  missing=$(missing_packages | tr '\n' ' ')
  [[ -z $missing ]] && return
  if ! prefix=$(privilege_prefix); then
    say "these packages are missing and this user may not install them; nothing was changed. Run:"
    say "  sudo apt-get update && sudo apt-get install --no-install-recommends -y $missing"
    exit 2
  fi
  say "installing Debian packages: $missing"
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086  # the prefix and the package list are words
  { $prefix apt-get update -q && $prefix apt-get install --no-install-recommends -y -q $missing; } >&2
}

is_usable_python() {
  "$1" -c "import sys, venv, ensurepip; sys.exit(sys.version_info < tuple(map(int, '$kMinPython'.split('.'))))" \
    >/dev/null 2>&1
}

make_venv() {
  [[ -x .venv/bin/python ]] && .venv/bin/python -c 'import pip' >/dev/null 2>&1 && return
  local python
  for python in python3 /usr/bin/python3; do
    if is_usable_python "$python"; then
      say "making .venv with $("$python" -c 'import sys; print(sys.executable, sys.version.split()[0])')"
      "$python" -m venv --clear .venv
      return
    fi
  done
  say "no Python $kMinPython or later with venv and ensurepip was found; install python3-venv, then run this again"
  exit 2
}

# Whether .venv holds every package of the requirements file at its version.
has_requirements() {
  .venv/bin/python - "$1" <<'PYTHON'
import importlib.metadata, sys
for line in open(sys.argv[1]):
    name, _, version = line.strip().partition("==")
    if not version or name.startswith("#"):
        continue
    try:
        if importlib.metadata.version(name) != version:
            sys.exit(1)
    except importlib.metadata.PackageNotFoundError:
        sys.exit(1)
PYTHON
}

# install_requirements FILE [PIP OPTION...]. The stamp tells a finished install from one that was cut short after the
# named packages and before their dependencies.
install_requirements() {
  local file=$1 stamp
  stamp=".venv/.installed-$(basename "$file" .txt)-$(cat "$file" tools/constraints.txt | sha256sum | cut -c1-16)"
  [[ -e $stamp ]] && has_requirements "$file" && return
  say "installing into .venv: $(grep -cE '^[A-Za-z].*==' "$file") pinned packages of $file"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "${@:2}" -r "$file" >&2
  touch "$stamp"
}

check_nvcc() {
  local nvcc
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  if ! "$nvcc" --version 2>/dev/null | grep -q "release $kCudaRelease"; then
    say "nvcc of CUDA $kCudaRelease was not found; install the CUDA toolkit $kCudaRelease and put its bin folder on PATH"
    exit 2
  fi
}

main() {
  local size=${1:-cpu}
  [[ $# -le 1 && $size =~ ^(text|cpu|test|gpu)$ ]] || usage
  install_debian_packages
  if [[ $size != text ]]; then
    make_venv
  fi
  case $size in
    cpu) install_requirements tools/requirements-cpu.txt --no-deps ;;
    test) install_requirements tools/requirements-test.txt ;;
    gpu)
      check_nvcc
      install_requirements tools/requirements-gpu.txt
      ;;
  esac
  say "the $size set-up is complete"
}

main "$@"
