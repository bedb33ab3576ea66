#!/usr/bin/env bash
# Compiles common/ and its unit tests for arm64 on another kind of machine, and runs them in qemu. The last line is
# "N passed, N failed". With ROOMs, such as codec or rule, it is their tests and what these include. Compiling all takes
# 25 minutes of two cores; what is compiled already stays.
#
# Libraries are Debian's for arm64, unpacked in ~/.cache/tessera-arm64/root: beside this machine's own they could not be
# installed, as some of them (yaml-cpp, prometheus-cpp) are for one architecture at a time. Wants g++-aarch64-linux-gnu
# and qemu-user-static.
set -euo pipefail
jobs=$(nproc)
[[ "${1:-}" == --jobs ]] && { jobs=${2:?--jobs wants a number}; shift 2; }
if [[ "${1:-}" == -* ]]; then
  echo "usage: deploy/arm64.sh [--jobs N] [ROOM ...; default all of common]"
  [[ "${1:-}" == "--help" ]] && exit 0 || exit 2
fi
folder=$HOME/.cache/tessera-arm64
cd "$(dirname "$0")/.."
rooms=()
for room in "$@"; do
  [[ -d tests/common/$room ]] ||
    { echo "arm64.sh: got \"$room\", want one of $(ls tests/common | tr '\n' ' ')" >&2; exit 2; }
  rooms+=("tests/common/$room")
done
[[ ${#rooms[@]} -gt 0 ]] || rooms=(tests/common)
for tool in aarch64-linux-gnu-g++ qemu-aarch64-static protoc grpc_cpp_plugin make apt-get; do
  command -v "$tool" >/dev/null ||
    { echo "arm64.sh: no $tool here: apt-get install g++-aarch64-linux-gnu qemu-user-static make" >&2; exit 1; }
done
root=$folder/root
libraries=(libgrpc++-dev libprotobuf-dev libabsl-dev libyaml-cpp-dev libssl-dev libxxhash-dev libzstd-dev zlib1g-dev
  libgoogle-perftools-dev prometheus-cpp-dev libcivetweb-dev catch2 libstdc++-12-dev nlohmann-json3-dev libcli11-dev)

# apt with a state of its own, in which nothing is installed: this machine's packages stay as they are.
fetch_libraries() {
  local state=$folder/apt
  mkdir -p "$state"/{lists/partial,archives/partial}
  local apt=(apt-get -q -o Dir::State="$state" -o Dir::State::status=/dev/null -o Dir::Cache="$state"
    -o APT::Architectures::=arm64 -o APT::Architectures::=amd64)
  "${apt[@]}" update
  "${apt[@]}" -y --download-only --no-install-recommends install "${libraries[@]/%/:arm64}"
  rm -rf "$root.part"
  mkdir -p "$root.part"
  for package in "$state"/archives/*_{arm64,all}.deb; do dpkg-deb -x "$package" "$root.part"; done
  # Links to absolute places of the other machine lead out of the folder.
  find "$root.part" -type l -lname '/*' -printf '%p\t%l\n' | while IFS=$'\t' read -r link target; do
    ln -sfn "$(realpath -m --relative-to="$(dirname "$link")" "$root.part$target")" "$link"
  done
  rm -rf "$root"
  mv "$root.part" "$root"
  echo "${libraries[*]}" >"$root.list"
}
mkdir -p "$folder"
log=$folder/log
if [[ "$(cat "$root.list" 2>/dev/null)" != "${libraries[*]}" ]] && ! fetch_libraries >"$log" 2>&1; then
  tail -20 "$log" >&2
  echo "arm64.sh: the libraries for arm64 are not to be had; the last lines are above" >&2
  exit 1
fi

# The sources of the tests, of the headers that they include, of those that these include, and so on; of a folder of
# common/ all, as the rows of its table have no header.
sources() {
  declare -A seen
  local queue=() next=0 file found
  add() {
    for file; do
      [[ -z "${seen[$file]:-}" && -f $file ]] || continue
      seen[$file]=1
      queue+=("$file")
    done
  }
  add $(find "${rooms[@]}" -name '*_test.cc' | sort) tests/catch_main.cc
  while [[ $next -lt ${#queue[@]} ]]; do
    for found in $(grep -o '^#include "\(common\|tests\)/[^"]*"' "${queue[$next]}" | cut -d'"' -f2); do
      [[ -z "${seen[$found]:-}" ]] || continue
      add "$found" "${found%.h}.cc"
      [[ $found != common/* ]] || add "${found%/*}"/*.cc
    done
    next=$((next + 1))
  done
  printf '%s\n' "${!seen[@]}" | grep '\.cc$' | sort
}

# One rule a file: objects lie in objects/ as their sources do in the tree.
{
  echo "CXX = aarch64-linux-gnu-g++ --sysroot=$root -std=c++17 -ffp-contract=off -I. -I$folder/gen" \
    "-isystem $root/usr/include"
  echo "all:"
  objects=() tests=()
  for proto in $(find proto -name '*.proto' | sort); do
    base=$folder/gen/${proto%.proto}
    made="$base.pb.cc" services=
    if grep -q '^service ' "$proto"; then
      made+=" $base.grpc.pb.cc"
      services="--grpc_out=$folder/gen --plugin=protoc-gen-grpc=$(command -v grpc_cpp_plugin)"
    fi
    protos+=" $made"
    # One call makes all of a file's sources.
    printf '%s &: %s\n\t@mkdir -p %s/gen\n\tprotoc -I. --cpp_out=%s/gen %s %s\n' "$made" "$proto" "$folder" \
      "$folder" "$services" "$proto"
    for source in $made; do
      object=$folder/objects/${source#"$folder"/}.o
      objects+=("$object")
      printf '%s: %s | protos\n\t@mkdir -p $(@D)\n\t$(CXX) -O1 -c $< -o $@\n' "$object" "$source"
    done
  done
  printf 'protos: %s\n.PHONY: protos all\n' "$protos"
  for source in $(sources); do
    object=$folder/objects/$source.o
    printf '%s: %s | protos\n\t@mkdir -p $(@D)\n\t$(CXX) -O%s -MMD -c $< -o $@\n-include %s\n' "$object" "$source" \
      "$([[ $source == common/* ]] && echo 2 || echo 1)" "${object%.o}.d"
    case $source in
      common/*) objects+=("$object") ;;
      *_test.cc) tests+=("$source") ;;
      *) helpers+=" $object" ;;
    esac
  done
  printf '%s: %s\n\t@rm -f $@\n\t@aarch64-linux-gnu-ar rcs $@ $^\n' "$folder/libcommon.a" "${objects[*]}"
  # Tests' own helpers, which only some of them want, are a library too.
  printf '%s: %s\n\t@rm -f $@\n\t@aarch64-linux-gnu-ar rcs $@ $^\n' "$folder/libtests.a" "${helpers:-}"
  for source in "${tests[@]}"; do
    program=$folder/bin/${source%.cc}
    printf 'all: %s\n%s: %s %s/libtests.a %s/libcommon.a\n' "$program" "$program" "$folder/objects/$source.o" \
      "$folder" "$folder"
    printf '\t@mkdir -p $(@D)\n\t$(CXX) $^ -o $@ $(LIBRARIES)\n'
  done
  absl=$(cd "$root/usr/lib/aarch64-linux-gnu" && printf -- '-l%s ' $(ls libabsl_*.so | sed 's/^lib//; s/\.so$//'))
  echo "LIBRARIES = -Wl,--as-needed -lgrpc++_reflection -lgrpc++ -lgrpc -lgpr -lprotobuf -lyaml-cpp $absl" \
    "-lprometheus-cpp-pull -lprometheus-cpp-core -lcivetweb-cpp -lcivetweb -lssl -lcrypto -lxxhash -lzstd -lz -lpthread"
} >"$folder/Makefile"
if ! make --silent -f "$folder/Makefile" --jobs="$jobs" --keep-going all >"$log" 2>&1; then
  grep -E 'error|undefined|\*\*\*' "$log" | head -40 >&2
  echo "arm64.sh: not all of it compiles; $log has the rest" >&2
fi

# Left out: cases about what qemu does in the system's place, such as its own last words behind a signal and limits of
# address space, and cases that hold how long something takes.
cases="~[system]~[timed]"
passed=0 failed=0
for source in $(find "${rooms[@]}" -name '*_test.cc' | sort); do
  program=$folder/bin/${source%.cc}
  output=$folder/output
  if [[ -x $program ]] && TEST_TMPDIR=$(mktemp -d -p "$folder") \
    timeout 600 qemu-aarch64-static -L "$root" "$program" "$cases" >"$output" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "arm64.sh: $source failed: $([[ -x $program ]] && tail -c 600 "$output" || echo "it does not compile")"
  fi
done
rm -rf "$folder"/tmp.*
echo "$passed passed, $failed failed"
[[ $failed -eq 0 && $passed -gt 0 ]]
