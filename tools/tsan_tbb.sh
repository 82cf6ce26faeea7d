#!/usr/bin/env bash
# Builds oneTBB under ThreadSanitizer from Debian's source package, for the preset `tsan`. Does nothing where it is there.
#
#   tools/tsan_tbb.sh        leaves build-tsan/tbb/install
#
# Debian's own library is compiled without the sanitizer, which then does not see how TBB's threads hand work over and
# reports races that are none; suppressing those would also hide races in the bodies that TBB runs.
#
# The system's list of package sources is left as it is: the same servers are asked for sources with lists of their own.
# Exit: 0 it is there; 2 this system cannot fetch sources; else what the build exited with.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly folder=$PWD/build-tsan/tbb
readonly install=$folder/install

say() { echo "tsan_tbb: $*" >&2; }

# apt-get with lists and a cache of its own, asking the system's servers for sources instead of programs.
own_apt() {
  apt-get -q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$folder/apt/sources" \
    -o Dir::State::Lists="$folder/apt/lists" -o Dir::Cache="$folder/apt" -o APT::Sandbox::User= "$@"
}

fetch_source() {
  mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial" "$folder/apt/sources"
  local list
  for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    [[ -f $list ]] || continue
    sed -E 's/^deb /deb-src /; s/^Types:.*/Types: deb-src/' "$list" >"$folder/apt/sources/${list##*/}"
  done
  own_apt update >&2
  rm -rf "$folder"/onetbb-*
  if ! (cd "$folder" && own_apt source --only-source onetbb >&2); then
    say "apt-get gives no source package onetbb here. It also wants dpkg-dev: apt-get install dpkg-dev"
    exit 2
  fi
}

build() {
  local sources
  sources=$(echo "$folder"/onetbb-*/)
  cmake -S "$sources" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_INSTALL_PREFIX="$install.partial" \
    -DTBB_SANITIZE=thread -DTBB_TEST=OFF -DTBB_STRICT=OFF -DTBBMALLOC_BUILD=OFF -DTBB_DISABLE_HWLOC_AUTOMATIC_SEARCH=ON >&2
  cmake --build "$folder/build" --parallel "${JOBS:-$(nproc)}" >&2
  rm -rf "$install.partial"
  cmake --install "$folder/build" >&2
  mv "$install.partial" "$install"
}

if [[ -d $install ]]; then
  exit 0
fi
fetch_source
build
say "oneTBB under ThreadSanitizer is in $install"
