#!/usr/bin/env bash
# Makes the portable bundle dist/draftmill-VERSION-ARCH.tar.gz of an already configured build: program, plug-ins, and every
# library that is neither torch's nor the system's. On the other machine it needs bash and a Python that has torch 2.11.0
# (or that package's folder, by --torch).
#
#   tools/dist.sh [BUILD FOLDER]        default: build
#
# Exit: 0 made, its path on standard output; 1 failed.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly build=${1:-build}

say() { echo "dist: $*" >&2; }

# Libraries of the system that every machine has in a version of its own, and torch's.
is_left_out() {
  case $(basename "$1") in
    ld-linux*|libc.so*|libm.so*|libdl.so*|librt.so*|libpthread.so*|libstdc++.so*|libgcc_s.so*) return 0 ;;
  esac
  case $1 in
    */site-packages/*|*/cuda*/*) return 0 ;;
  esac
  return 1
}

copy_libraries() {
  local file path
  for file in "$stage/bin/draftmill" "$stage"/lib/libdraftmill_*.so; do
    [[ -e $file ]] || continue
    # The originals of the build tree know where torch lies.
    ldd "$build/$(basename "$file")" | awk '$2 == "=>" && $3 ~ /^\// {print $3}'
  done | sort -u | while read -r path; do
    is_left_out "$path" || cp -L "$path" "$stage/lib/"
  done
}

write_launcher() {
  cat >"$stage/draftmill" <<'LAUNCHER'
#!/usr/bin/env bash
# Starts draftmill with the libraries of torch 2.11.0: those of the folder given by `--torch DIR` (first), else of python3.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
torch=""
if [[ ${1:-} == --torch ]]; then
  torch=${2:?"draftmill: --torch needs the folder of the Python package torch"}
  shift 2
else
  torch=$(python3 -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")' || true)
fi
if [[ ! -e $torch/lib/libtorch_cpu.so ]]; then
  echo "draftmill: torch was not found${torch:+ in $torch}; put a python3 that has torch 2.11.0 on PATH, or name the package's folder: draftmill --torch DIR ..." >&2
  exit 2
fi
if ! grep -q "^__version__ = '2\.11\.0" "$torch/version.py" 2>/dev/null; then
  echo "draftmill: $torch is not torch 2.11.0, with which this program was built" >&2
  exit 2
fi
libraries=$here/lib:$torch/lib
for folder in "$torch"/../nvidia/*/lib; do libraries+=:$folder; done
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$here/bin/draftmill" "$@"
LAUNCHER
  chmod 755 "$stage/draftmill"
}

[[ -x $build/draftmill ]] || { say "$build/draftmill is missing: cmake --build $build --target draftmill"; exit 1; }
version=$("$build/draftmill" --version)
readonly name="draftmill-$version-$(uname -m)"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
readonly stage=$scratch/$name
cmake --install "$build" --prefix "$stage" --component bundle --strip >/dev/null
mkdir -p "$stage/lib" dist
copy_libraries
write_launcher
tar --sort=name --owner=0 --group=0 --numeric-owner -C "$scratch" -czf "dist/$name.tar.gz" "$name"
say "$(du -h "dist/$name.tar.gz" | cut -f1) in dist/$name.tar.gz"
echo "dist/$name.tar.gz"
