#!/usr/bin/env bash
# Packs the three programs and the client library with the libraries that they are linked with, jobs, units and
# dashboards into one folder, and that into one file, which run on any Linux machine of this kind of processor with a C
# library that is new enough: no packages are needed there. What becomes of a folder that is there already:
# bundle_folder.sh.
#
# There: tar -C /opt -xzf tessera.tar.gz; /opt/tessera/tessera run /opt/tessera/jobs/digits.yaml
set -euo pipefail
config=()
[[ "${1:-}" == "--cuda" ]] && config=(--config=cuda) && shift
if [[ "${1:-}" == -* || $# -gt 1 ]]; then
  echo "usage: deploy/bundle.sh [--cuda] [FOLDER; default tessera, in the root of the tree]"
  [[ "${1:-}" == "--help" ]] && exit 0 || exit 2
fi
out=${1:+$(realpath -m "$1")}
cd "$(dirname "$0")/.."
out=${out:-tessera}
umask 022
deploy/bundle_folder.sh --check "$out"

programs=(//deploy/cli:tessera //server:tessera-server //worker:tessera-worker)
library=//worker/client:libtessera_client.so
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! bazel build "${config[@]}" "${programs[@]}" "$library" >"$log" 2>&1; then
  grep -v 'linux-sandbox' "$log" | tail -60 >&2
  echo "bundle.sh: the build failed; its last lines are above" >&2
  exit 1
fi
deploy/bundle_folder.sh --begin "$out"
part=$out.part
mkdir "$part/data"
for target in "${programs[@]}"; do
  path=${target#//}
  install -m 755 "bazel-bin/${path/://}" "$part/"
done
# Programs of one's own are linked with it: PKG_CONFIG_PATH=FOLDER/client pkg-config --cflags --libs tessera_client
mkdir "$part/client"
install -m 755 bazel-bin/worker/client/libtessera_client.so "$part/client/libtessera_client.so.1"
install -m 644 worker/client/tessera_client.{h,hpp,pc} "$part/client/"
# The package looks for the library where it lies here.
mkdir -p "$part/python/tessera"
install -m 644 worker/python/tessera/*.py "$part/python/tessera/"
strip --strip-debug "$part"/tessera* "$part/client/libtessera_client.so.1"
glibc=$(deploy/pack_libraries.sh "$part/lib" "$part"/tessera* "$part/client/libtessera_client.so.1")
ln -s libtessera_client.so.1 "$part/client/libtessera_client.so"
cp -rL deploy/data/optdigits "$part/data/"
cp -r deploy/dashboards deploy/jobs deploy/manifests deploy/units "$part/"
install -m 755 deploy/fetch_data.sh "$part/"
sed -i 's|deploy/fetch_data\.sh|fetch_data.sh|' "$part"/jobs/*.yaml
find "$part" -name BUILD.bazel -delete
cp LICENSE "$part/"
deploy/bundle_folder.sh --end "$out"
echo "bundle.sh: $out holds $(du -sh "$out" | cut -f1), $out.tar.gz $(du -sh "$out.tar.gz" | cut -f1)"
echo "bundle.sh: it wants $(uname -m) and glibc $glibc or newer${config:+, and CUDA 13 for workers on GPUs}"
