"""Jobs of fake_client.c: one worker and its servers in this process."""
import ctypes
import os
import sys
import tempfile
import unittest

ROOT = os.getcwd()
PACKAGE = os.path.join(ROOT, "worker/python")
FAKE = os.environ.get("TESSERA_FAKE_CLIENT") or os.path.join(ROOT, "tests/worker/python/libfake_client.so")
sys.path.insert(0, PACKAGE)
os.environ["TESSERA_CLIENT_LIBRARY"] = FAKE

import numpy as np  # noqa: E402
import tessera  # noqa: E402

TENSORS = ("tensor a 2 3", "tensor b 4")


class FakeJobTest(unittest.TestCase):
    """Each test has servers of its own, and leaves no job open."""

    def setUp(self):
        self.fake = ctypes.CDLL(FAKE)
        self.fake.fake_log.restype = ctypes.c_char_p
        self.fake.fake_reset()
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        for name in ("TESSERA_JOB", "TESSERA_RANK", "TESSERA_COORDINATOR"):
            os.environ.pop(name, None)

    def write(self, *lines):
        """The job file: the lines, behind the two tensors unless others are given."""
        lines = lines if any(line.startswith("tensor") for line in lines) else TENSORS + lines
        path = os.path.join(self.folder, "job")
        with open(path, "w") as file:
            file.write("".join(line + "\n" for line in lines))
        return path

    def join(self, *lines, **arguments):
        job = tessera.join(self.write(*lines), **arguments)
        self.addCleanup(job._close_quietly)
        return job

    def calls(self):
        """What the library was called for, but for the first join."""
        return self.fake.fake_log().decode().strip(";").split(";")[1:]

    def open_jobs(self):
        return self.fake.fake_open_jobs()


def initial(shape, parameter):
    """The values that a parameter begins with."""
    size = int(np.prod(shape))
    return (parameter + 1 + np.arange(size, dtype=np.float32) / 128).reshape(shape)
