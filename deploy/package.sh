#!/usr/bin/env bash
# Builds Debian packages of the tree into a folder: tessera (programs, units, jobs, man pages, completion),
# libtessera-client1 and -dev, python3-tessera. What they need of other packages, dpkg-shlibdeps finds in the programs.
#
# The version is the tree's, and where CHANGELOG.md has unreleased changes the time of the last commit behind it:
# 0.2.0+202611281530. SOURCE_DATE_EPOCH names another time; DEBFULLNAME and DEBEMAIL name the one who packs.
#
# There: apt install ./tessera_*.deb; tessera run /usr/share/tessera/jobs/digits.yaml
set -euo pipefail
if [[ "${1:-}" == -* || $# -gt 1 ]]; then
  echo "usage: [DEBFULLNAME=NAME DEBEMAIL=ADDRESS] deploy/package.sh [FOLDER; default packages, in the tree's root]"
  [[ "${1:-}" == "--help" ]] && exit 0 || exit 2
fi
out=${1:+$(realpath -m "$1")}
cd "$(dirname "$0")/.."
out=${out:-$PWD/packages}
umask 022
missing=()
for tool in dpkg-buildpackage dh dh_python3; do command -v "$tool" >/dev/null || missing+=("$tool"); done
if [[ ${#missing[@]} -gt 0 ]]; then
  echo "package.sh: no ${missing[*]} here: apt-get install dpkg-dev debhelper dh-python" >&2
  exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log
if ! bazel build //deploy/cli:tessera //server:tessera-server //worker:tessera-worker \
  //worker/client:libtessera_client.so >"$log" 2>&1; then
  grep -v 'linux-sandbox' "$log" | tail -60 >&2
  echo "package.sh: the build failed; its last lines are above" >&2
  exit 1
fi

version=$(sed -n 's/.*kVersion\[\] = "\(.*\)";/\1/p' common/base/process.h)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
if grep -q '^## Unreleased' CHANGELOG.md; then
  version+=+$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M)
fi
maintainer="${DEBFULLNAME:-The Tessera authors} <${DEBEMAIL:-tessera@packages.invalid}>"

# The source that debhelper sees: debian/, and in stage/ what is to be installed.
tree=$work/tessera-$version
stage=$tree/stage
mkdir -p "$stage"/{bin,lib/pkgconfig,include,python/tessera,share/data,units,completion/bash,completion/zsh,examples}
cp -r deploy/debian "$tree/debian"
sed -i "s/@MAINTAINER@/$maintainer/" "$tree/debian/control"
cat >"$tree/debian/changelog" <<END
tessera ($version) unstable; urgency=medium

  * Packed from the tree; /usr/share/doc/tessera/CHANGELOG.md tells the rest.

 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
END
install -m 755 bazel-bin/deploy/cli/tessera bazel-bin/server/tessera-server bazel-bin/worker/tessera-worker \
  "$stage/bin/"
install -m 644 bazel-bin/worker/client/libtessera_client.so "$stage/lib/libtessera_client.so.1"
install -m 644 worker/client/tessera_client.h worker/client/tessera_client.hpp "$stage/include/"
# Headers and library lie where compilers look.
sed -e '/^prefix=/d' -e '/^Cflags:/d' -e 's/^Libs:.*/Libs: -ltessera_client/' worker/client/tessera_client.pc \
  >"$stage/lib/pkgconfig/tessera_client.pc"
install -m 644 worker/python/tessera/*.py "$stage/python/tessera/"
cp -rL deploy/data/optdigits "$stage/share/data/"
cp -r deploy/dashboards deploy/jobs deploy/manifests "$stage/share/"
install -m 755 deploy/fetch_data.sh "$stage/share/"
find "$stage" -name BUILD.bazel -delete
# Data sets that are fetched belong to the machine; the small one comes with the package.
sets=/var/lib/tessera/data
sed -i -e "s|^to=\$root/data\$|to=$sets|" -e "s|(default: data/ .*|(default: $sets, where the jobs look)|" \
  "$stage/share/fetch_data.sh"
sed -i -e "s|directory: \.\./\.\./data/|directory: $sets/|" \
  -e 's|deploy/fetch_data\.sh|/usr/share/tessera/fetch_data.sh|' "$stage"/share/jobs/*.yaml
install -m 644 deploy/units/* "$stage/units/"
# The package makes the user, and the programs lie where all programs do.
sed -i -e 's|/opt/tessera/|/usr/bin/|' -e 's|the programs lie in /opt/tessera|the programs lie in /usr/bin|' \
  -e '/^# Servers and workers run as one user/d; /^# useradd /d' "$stage"/units/*
install -m 644 deploy/examples/* "$stage/examples/"
install -m 644 README.md CHANGELOG.md "$stage/"
deploy/man_pages.py "$stage/man"
deploy/completions.py "$work/completion"
install -m 644 "$work/completion/tessera.bash" "$stage/completion/bash/tessera"
install -m 644 "$work/completion/_tessera" "$stage/completion/zsh/_tessera"

if ! (cd "$tree" && dpkg-buildpackage --build=binary --no-sign --jobs=auto) >"$log" 2>&1; then
  tail -40 "$log" >&2
  echo "package.sh: dpkg-buildpackage failed; its last lines are above" >&2
  exit 1
fi
mkdir -p "$out"
rm -f "$out"/{tessera,libtessera-client1,libtessera-client-dev,python3-tessera}_*.deb
rm -f "$out"/tessera_*.{changes,buildinfo}
mv "$work"/*.deb "$work"/*.changes "$work"/*.buildinfo "$out/"
echo "package.sh: $out holds version $version, $(cat "$out"/*.deb | wc -c | numfmt --to=iec) in 4 packages"
