"""What deploy/bundle.sh packs: programs that take their libraries from beside them, and run from there."""
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

HERE = os.getcwd()
PROGRAMS = ["deploy/cli/tessera", "server/tessera-server", "worker/tessera-worker",
            "worker/client/libtessera_client.so"]
# The C library, the loader and the kernel's own: the machine's. The C++ library's are its own where it has them.
OF_THE_MACHINE = re.compile(r"^(linux-vdso|libc|libm|libdl|librt|libpthread|libresolv|.*ld-linux-[^.]*)\.so")


class Bundle(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def put(self, path, text):
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def pack(self, programs, tools):
        environment = dict(os.environ, PATH=tools + ":/usr/bin:/bin")
        return subprocess.run(["bash", os.path.join(HERE, "deploy", "pack_libraries.sh"),
                               os.path.join(self.folder, "lib"), *programs], env=environment, text=True,
                              capture_output=True, timeout=60)

    def test_a_bundle_runs_from_where_it_is_unpacked_with_its_own_libraries(self):
        # A tree in which bazel has nothing left to do, and a user whose files nobody else may read.
        tree, tools = os.path.join(self.folder, "tree"), os.path.join(self.folder, "tools")
        for part in ("dashboards", "data", "jobs", "manifests", "units"):
            shutil.copytree(os.path.join(HERE, "deploy", part), os.path.join(tree, "deploy", part))
        for script in ("bundle.sh", "bundle_folder.sh", "fetch_data.sh", "pack_libraries.sh"):
            shutil.copy(os.path.join(HERE, "deploy", script), os.path.join(tree, "deploy"))
        for program in PROGRAMS:
            for place in ("bazel-bin", ""):
                os.makedirs(os.path.join(tree, place, os.path.dirname(program)), exist_ok=True)
            shutil.copy(os.path.join(HERE, program), os.path.join(tree, "bazel-bin", program))
        for file in ("h", "hpp", "pc"):
            shutil.copy(os.path.join(HERE, "worker/client/tessera_client." + file), os.path.join(tree, "worker/client"))
        shutil.copytree(os.path.join(HERE, "worker/python"), os.path.join(tree, "worker/python"))
        shutil.copy(os.path.join(HERE, "LICENSE"), tree)
        os.mkdir(tools)
        self.put(os.path.join(tools, "bazel"), "#!/bin/sh\nexit 0\n")
        done = subprocess.run(["bash", "-c", "umask 077; deploy/bundle.sh tessera/"], cwd=tree, text=True,
                              env={"PATH": tools + ":/usr/bin:/bin"}, capture_output=True, timeout=100)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        # No newer than that of the oldest machines with a C++ library that fits.
        self.assertRegex(done.stdout, r"bundle.sh: it wants \S+ and glibc 2\.3[0-5] or newer")

        there = os.path.join(self.folder, "opt")
        os.mkdir(there)
        archive = shutil.move(os.path.join(tree, "tessera.tar.gz"), self.folder)
        subprocess.run(["tar", "-C", there, "-xzf", archive], check=True)
        there = os.path.join(there, "tessera")
        shutil.rmtree(tree)
        self.assertEqual(sorted(os.listdir(there)), ["LICENSE", "bundle.sha256", "client", "dashboards",
                                                     "data", "fetch_data.sh", "jobs", "lib", "manifests", "python",
                                                     "tessera",
                                                     "tessera-server", "tessera-worker", "units"])
        subprocess.run(["sha256sum", "--check", "--quiet", "bundle.sha256"], cwd=there, check=True)
        with tarfile.open(archive) as packed:
            self.assertEqual({(member.uid, member.gid, member.uname, member.gname) for member in packed},
                             {(0, 0, "", "")})
        # Data sets are put where the jobs that lie beside the script look; this one is refused once it is there.
        os.mkdir(os.path.join(self.folder, "mnist"))
        self.put(os.path.join(self.folder, "mnist", "train-images-idx3-ubyte.gz"), "none")
        fetched = subprocess.run([os.path.join(there, "fetch_data.sh"), "--from", self.folder, "mnist"], text=True,
                                 capture_output=True)
        self.assertIn("does not hold what is expected", fetched.stderr)
        with open(os.path.join(there, "jobs", "mnist.yaml")) as file:
            job = file.read()
        self.assertIn("with: fetch_data.sh mnist\n", job)
        directory = re.search(r"^  directory: (\S+)", job, re.M).group(1)
        self.assertTrue(os.path.isdir(os.path.join(there, "jobs", directory)), directory)
        for folder, _, files in os.walk(there):
            self.assertEqual(os.stat(folder).st_mode & 0o755, 0o755, folder)
            self.assertNotIn("BUILD.bazel", files)
        for package in ("libgrpc29", "libdnnl2", "libstdc++6"):
            self.assertGreater(os.path.getsize(os.path.join(there, "lib", "licenses", package)), 100)
        for program in ("tessera", "tessera-server", "tessera-worker", "client/libtessera_client.so"):
            loaded = subprocess.run(["ldd", os.path.join(there, program)], env={"PATH": "/usr/bin:/bin"}, text=True,
                                    check=True, stdout=subprocess.PIPE).stdout
            places = dict(re.findall(r"^\s*(\S+) => (\S+)", loaded, re.M))
            self.assertIn("libgrpc++.so", "".join(places))
            for library, place in places.items():
                if re.match(r"lib(stdc\+\+|gcc_s)\.so", library):
                    self.assertFalse(os.path.exists(os.path.join(there, "lib", library)), library)
                    self.assertTrue(os.path.exists(os.path.join(there, "lib", "cxx", library)), library)
                    self.assertRegex(place, "^/(usr/)?lib", library)
                elif OF_THE_MACHINE.match(library):
                    self.assertFalse(os.path.exists(os.path.join(there, "lib", library)), library)
                else:
                    self.assertEqual(os.path.realpath(os.path.dirname(place)),
                                     os.path.realpath(os.path.join(there, "lib")), library)
        self.check_client(os.path.join(there, "client"))
        report = os.path.join(self.folder, "report.json")
        subprocess.run([os.path.join(there, "tessera"), "run", "jobs/digits.yaml", "--quiet", "--set",
                        "train.epochs=1", "--report", report], cwd=there, env={"PATH": "/usr/bin:/bin"}, check=True,
                       timeout=100)
        with open(report) as file:
            self.assertGreater(json.load(file)["final"]["test_accuracy"], 0.5)

    def check_client(self, folder):
        """A C program is built against the library with pkg-config alone, and finds it."""
        source, program = os.path.join(self.folder, "one.c"), os.path.join(self.folder, "one")
        self.put(source, "#include <stdio.h>\n#include \"tessera_client.h\"\n"
                         "int main(void) { return puts(tessera_version()) < 0; }\n")
        environment = {"PATH": "/usr/bin:/bin", "PKG_CONFIG_PATH": folder}
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "tessera_client"], env=environment, text=True,
                               check=True, stdout=subprocess.PIPE).stdout.split()
        version = subprocess.run(["pkg-config", "--modversion", "tessera_client"], env=environment, text=True,
                                 check=True, stdout=subprocess.PIPE).stdout
        python = "/usr/bin/python3"
        if subprocess.run([python, "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode == 0:
            told = subprocess.run([python, "-c", "import tessera; print(tessera.version())"], text=True,
                                  env={"PATH": "/usr/bin:/bin", "PYTHONPATH": os.path.join(folder, "../python")},
                                  check=True, stdout=subprocess.PIPE).stdout
            self.assertEqual(told, version)
        subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", source, *flags, "-o", program], check=True)
        self.assertEqual(subprocess.run([program], text=True, check=True, stdout=subprocess.PIPE).stdout, version)

    def test_a_library_that_is_not_there_is_named(self):
        tools = os.path.join(self.folder, "tools")
        os.mkdir(tools)
        self.put(os.path.join(tools, "patchelf"), "#!/bin/sh\nexit 0\n")
        for said, code, named in (("libfoo.so.3 => not found", 1, "libfoo.so.3"),
                                  ("libcublas.so.13 => not found", 0, "")):
            with self.subTest(said):
                self.put(os.path.join(tools, "ldd"), "#!/bin/sh\nprintf '\\tlibc.so.6 => /lib/libc.so.6 (0x1)\\n'\n"
                         "printf '\\t%s\\n'\n" % said)
                done = self.pack(["program"], tools)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertEqual(done.stderr, "pack_libraries.sh: not on this machine: %s\n" % named if code else "")


if __name__ == "__main__":
    unittest.main()
