#!/usr/bin/env python3
"""Packs the Python package and the client library, with the libraries that it is linked with, into a wheel.

usage: deploy/wheel.py [--library FILE] [FOLDER; default the root of the tree]

Without --library the client library is built first. The wheel is for Linux machines of this kind of processor with a C
library that is new enough, and for Python 3.11 and later: pip install tessera-*.whl. Nothing is fetched, and the same
files give the same wheel.
"""
import argparse
import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGET = "worker/client/libtessera_client.so"
# The earliest date that a zip file can have.
DATE = (1980, 1, 1, 0, 0, 0)


def failed(why):
    print("wheel.py: " + why, file=sys.stderr)
    return 1


def version():
    with open(os.path.join(ROOT, "common/base/process.h"), encoding="utf-8") as file:
        return re.search(r'kVersion\[\] = "(.*)";', file.read()).group(1)


def metadata(name):
    return ("Metadata-Version: 2.1\nName: tessera\nVersion: %s\nSummary: Programs with models of their own as workers "
            "of a parameter server\nLicense: Apache-2.0\nRequires-Python: >=3.11\nRequires-Dist: numpy\n" % name)


def write_wheel(files, path):
    """`files`: {path in the wheel: bytes}, and a RECORD of them all goes behind."""
    info = next(name.split("/")[0] for name in files if ".dist-info/" in name)
    lines = []
    for name, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append("%s,sha256=%s,%d\n" % (name, digest, len(data)))
    lines.append("%s/RECORD,,\n" % info)
    with zipfile.ZipFile(path + ".part", "w") as wheel:
        for name, data in sorted(files.items()) + [("%s/RECORD" % info, "".join(lines).encode())]:
            entry = zipfile.ZipInfo(name, DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            # Files that all may read.
            entry.external_attr = 0o100644 << 16
            wheel.writestr(entry, data)
    os.replace(path + ".part", path)


def collect(folder):
    """{path below the folder: bytes}"""
    files = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = os.path.join(place, name)
            if not name.endswith(".pyc"):
                with open(path, "rb") as file:
                    files[os.path.relpath(path, folder)] = file.read()
    return files


def main():
    about, usage = __doc__.split("\n\n")[:2]
    parser = argparse.ArgumentParser(usage=usage.replace("usage: ", ""), description=about)
    parser.add_argument("--library", metavar="FILE", help="libtessera_client.so; without it Bazel builds it")
    parser.add_argument("folder", nargs="?", default=ROOT)
    arguments = parser.parse_args()
    library = arguments.library
    if library is None:
        built = subprocess.run(["bazel", "build", "//" + ":".join(TARGET.rsplit("/", 1))], cwd=ROOT, text=True,
                               capture_output=True)
        if built.returncode != 0:
            sys.stderr.write(built.stderr[-6000:])
            return failed("the build failed; its last lines are above")
        library = os.path.join(ROOT, "bazel-bin", TARGET)
    if not os.path.isfile(library):
        print("wheel.py: --library is \"%s\", where there is no file" % library, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        package = os.path.join(folder, "tessera")
        shutil.copytree(os.path.join(ROOT, "worker/python/tessera"), package,
                        ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        packed = os.path.join(package, "libtessera_client.so")
        shutil.copyfile(library, packed)
        os.chmod(packed, 0o755)
        for command in (["strip", "--strip-debug", packed],
                        [os.path.join(ROOT, "deploy/pack_libraries.sh"), os.path.join(package, "lib"), packed]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                return failed("%s: %s" % (os.path.basename(command[0]), done.stderr.strip()))
        files = collect(folder)
    info = "tessera-%s.dist-info" % version()
    tag = "py3-none-linux_%s" % platform.machine()
    with open(os.path.join(ROOT, "LICENSE"), "rb") as file:
        files[info + "/LICENSE"] = file.read()
    files[info + "/METADATA"] = metadata(version()).encode()
    about = "Wheel-Version: 1.0\nGenerator: wheel.py\nRoot-Is-Purelib: false\nTag: %s\n" % tag
    files[info + "/WHEEL"] = about.encode()
    os.makedirs(arguments.folder, exist_ok=True)
    path = os.path.join(arguments.folder, "tessera-%s-%s.whl" % (version(), tag))
    write_wheel(files, path)
    print("wheel.py: %s has %d files; it wants %s and glibc %s or newer"
          % (path, len(files) + 1, platform.machine(), done.stdout.strip()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
