"""What deploy/bundle.sh packs: programs that find their libraries beside them, and run from there."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

HERE = os.getcwd()
PROGRAMS = ["deploy/cli/tessera", "server/tessera-server", "worker/tessera-worker"]
# The C library, the loader and the kernel's own: the machine's.
OF_THE_MACHINE = re.compile(r"^(linux-vdso|libc|libm|libdl|librt|libpthread|libresolv|.*ld-linux-[^.]*)\.so")


class Bundle(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "tessera")
        os.mkdir(self.folder)

    def pack(self, programs, tools=None):
        environment = dict(os.environ, PATH="%s:/usr/bin:/bin" % tools if tools else "/usr/bin:/bin")
        return subprocess.run(["bash", os.path.join(HERE, "deploy", "pack_libraries.sh"),
                               os.path.join(self.folder, "lib"), *programs], env=environment, text=True,
                              capture_output=True, timeout=60)

    def test_packed_programs_take_their_libraries_from_beside_them_and_run(self):
        programs = [shutil.copy(os.path.join(HERE, program), self.folder) for program in PROGRAMS]
        done = self.pack(programs)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for program in programs:
            loaded = subprocess.run([program], env={"LD_TRACE_LOADED_OBJECTS": "1"}, text=True, check=True,
                                    stdout=subprocess.PIPE).stdout
            places = dict(re.findall(r"^\s*(\S+) => (\S+)", loaded, re.M))
            self.assertIn("libgrpc++.so", "".join(places))
            for library, place in places.items():
                if OF_THE_MACHINE.match(library):
                    self.assertFalse(os.path.exists(os.path.join(self.folder, "lib", library)), library)
                else:
                    self.assertEqual(os.path.realpath(os.path.dirname(place)),
                                     os.path.realpath(os.path.join(self.folder, "lib")), library)
        shutil.copytree(os.path.join(HERE, "deploy", "jobs"), os.path.join(self.folder, "jobs"))
        shutil.copytree(os.path.join(HERE, "deploy", "data"), os.path.join(self.folder, "data"))
        report = os.path.join(self.folder, "report.json")
        subprocess.run([programs[0], "run", "jobs/digits.yaml", "--quiet", "--set", "train.epochs=1", "--report",
                        report], cwd=self.folder, env={"PATH": "/usr/bin:/bin"}, check=True, timeout=100)
        with open(report) as file:
            self.assertGreater(json.load(file)["final"]["test_accuracy"], 0.5)

    def test_a_library_that_is_not_there_is_named(self):
        tools = os.path.join(self.folder, "tools")
        os.mkdir(tools)
        ldd = os.path.join(tools, "ldd")
        for said, code, named in (("libfoo.so.3 => not found", 1, "libfoo.so.3"),
                                  ("libcublas.so.13 => not found", 0, "")):
            with self.subTest(said):
                with open(ldd, "w") as file:
                    file.write("#!/bin/sh\nprintf '\\tlibz.so.1 => /usr/lib/x86_64-linux-gnu/libz.so.1 (0x1)\\n'\n"
                               "printf '\\t%s\\n'\n" % said)
                os.chmod(ldd, 0o755)
                done = self.pack(["program"], tools)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertEqual(done.stderr, "pack_libraries.sh: not on this machine: %s\n" % named if code else "")


if __name__ == "__main__":
    unittest.main()
