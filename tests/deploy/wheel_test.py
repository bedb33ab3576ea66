"""What deploy/wheel.py packs: a package that pip installs, and that finds its library beside itself."""
import base64
import csv
import hashlib
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = os.getcwd()
FAKE = os.environ.get("TESSERA_FAKE_CLIENT") or os.path.join(ROOT, "tests/worker/python/libfake_client.so")


class Wheel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def pack(self, out, *flags, code=0):
        done = subprocess.run([sys.executable, os.path.join(ROOT, "deploy/wheel.py"), *flags, out], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def wheel(self, name="out"):
        out = os.path.join(self.folder, name)
        self.assertIn("wheel.py: %s" % out, self.pack(out, "--library", FAKE))
        path, = os.listdir(out)
        self.assertRegex(path, r"^tessera-\d+\.\d+\.\d+-py3-none-linux_\w+\.whl$")
        return os.path.join(out, path)

    def test_the_record_has_every_file_with_its_sum(self):
        with zipfile.ZipFile(self.wheel()) as wheel:
            names = set(wheel.namelist())
            record, = [name for name in names if name.endswith("/RECORD")]
            rows = list(csv.reader(wheel.read(record).decode().splitlines()))
            self.assertEqual({row[0] for row in rows}, names)
            for name, digest, size in rows:
                data = wheel.read(name)
                if name != record:
                    want = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                    self.assertEqual((digest, size), ("sha256=" + want, str(len(data))))
            self.assertLessEqual({"tessera/__init__.py", "tessera/torch.py", "tessera/libtessera_client.so"}, names)
            self.assertFalse([name for name in names if "__pycache__" in name])

    def test_the_same_files_give_the_same_wheel(self):
        packed = []
        for name in ("one", "two"):
            with open(self.wheel(name), "rb") as file:
                packed.append(file.read())
        self.assertEqual(packed[0], packed[1])

    def test_an_installed_package_loads_its_own_library(self):
        there, job = os.path.join(self.folder, "there"), os.path.join(self.folder, "job")
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", there,
                   self.wheel()]
        if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode == 0:
            done = subprocess.run(install, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        else:
            with zipfile.ZipFile(install[-1]) as wheel:
                wheel.extractall(there)
        with open(job, "w") as file:
            file.write("tensor a 2\n")
        program = ("import sys, tessera, tessera.library\nwith tessera.join(sys.argv[1]) as job:\n"
                   "    print(tessera.library.load()._name, job.tensors[0].name, tessera.version())\n")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_")}
        done = subprocess.run([sys.executable, "-c", program, job], capture_output=True, text=True, cwd=self.folder,
                              env=dict(environment, PYTHONPATH=there))
        self.assertEqual(done.stdout, "%s/tessera/libtessera_client.so a 0.0.1\n" % there, done.stderr)

    def test_a_library_that_is_not_there_is_named(self):
        self.assertIn("wheel.py: --library is \"/nowhere\", where there is no file",
                      self.pack(self.folder, "--library", "/nowhere", code=2))
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main()
