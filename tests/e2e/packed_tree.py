"""A copy of the tree in which deploy's scripts find what Bazel has built, for tests of what they pack."""
import os
import shutil

from cluster import ROOT

BUILT = ["deploy/cli/tessera", "server/tessera-server", "worker/tessera-worker", "worker/client/libtessera_client.so"]
COPIED = ["LICENSE", "README.md", "CHANGELOG.md", "common/base/process.h", "deploy/bundle.sh",
          "deploy/bundle_folder.sh",
          "deploy/pack_libraries.sh", "deploy/package.sh", "deploy/fetch_data.sh", "deploy/man_pages.py",
          "deploy/completions.py", "deploy/command_help.py", "deploy/cli/help/embed_pages.py", "deploy/data/optdigits",
          "deploy/dashboards", "deploy/debian", "deploy/examples", "deploy/jobs", "deploy/manifests", "deploy/units",
          "docs", "worker/client/tessera_client.h", "worker/client/tessera_client.hpp",
          "worker/client/tessera_client.pc", "worker/python/tessera"]


def pack(folder):
    """Copies the tree to `folder`/tree. Returns (its path, the environment in which its scripts run)."""
    tree, tools = os.path.join(folder, "tree"), os.path.join(folder, "tools")
    for path in COPIED + BUILT:
        target = os.path.join(tree, "bazel-bin" if path in BUILT else "", path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        source = os.path.join(ROOT, path)
        # In a tree that Bazel builds in, and not in its copy for a test, programs lie apart.
        if path in BUILT and not os.path.isfile(source):
            source = os.path.join(ROOT, "bazel-bin", path)
        copy = shutil.copytree if os.path.isdir(source) else shutil.copy
        copy(source, target)
    os.makedirs(tools)
    with open(os.path.join(tools, "bazel"), "w") as file:
        file.write("#!/bin/sh\nexit 0\n")
    os.chmod(os.path.join(tools, "bazel"), 0o755)
    environment = {"PATH": tools + ":/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": folder,
                   "SOURCE_DATE_EPOCH": "1790000000"}
    return tree, environment
