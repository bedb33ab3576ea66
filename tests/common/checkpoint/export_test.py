"""Files that the program writes, read by an independent reader of the layout; and `tessera export`."""
import os
import stat
import subprocess
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, os.path.join("tests", "common", "checkpoint"))
import safetensors_reader  # noqa: E402

TESSERA = os.path.join("deploy", "cli", "tessera")
WRITE = os.path.join("tests", "server", "checkpoint", "write_checkpoints")


def saved(step, parameter, state, rows, columns):
    """What write_checkpoints writes (saved_model.h)."""
    row = numpy.arange(rows).reshape(rows, 1)
    column = numpy.arange(columns).reshape(1, columns)
    values = (step * 1000.0 + parameter * 400 + (state + 1) * 100 + row * 10 + column) / 8
    return values.astype(numpy.float32)


def export(checkpoint, out, *flags):
    return subprocess.run([TESSERA, "export", checkpoint, out, *flags], capture_output=True, text=True)


class Export(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        subprocess.run([WRITE, self.directory, "--shards", "3", "--keep", "2", "100", "200", "300"], check=True)
        self.out = os.path.join(self.directory, "out.safetensors")

    def step(self, number):
        return os.path.join(self.directory, "step-%012d" % number)

    def test_an_independent_reader_finds_what_was_written(self):
        rows = {"layers.0.weight": 7, "layers.0.bias": 7, "squares.layers.0.weight": 2}
        columns = {"layers.0.weight": 5, "layers.0.bias": 1, "squares.layers.0.weight": 3}
        found = {name: [] for name in rows}
        found.update({"state.%d.%s" % (state, name): [] for name in rows for state in range(2)})
        for shard in range(3):
            tensors, _ = safetensors_reader.load(os.path.join(self.step(300), "shard-%d-of-3.safetensors" % shard))
            for name, values in tensors.items():
                found[name].append(values)
        for name, pieces in found.items():
            parameter = name if name in rows else name.split(".", 2)[2]
            state = -1 if name in rows else int(name.split(".")[1])
            want = saved(300, list(rows).index(parameter), state, rows[parameter], columns[parameter])
            got = numpy.concatenate(pieces)
            numpy.testing.assert_array_equal(got.reshape(want.shape), want, name)
            self.assertEqual(got.ndim, 1 if parameter.endswith("bias") else 2, name)

    def test_an_export_has_the_whole_model_under_its_names_and_no_state(self):
        done = export(self.step(200), self.out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "%s: 42 parameters in 2 tensors, of step 200\n" % self.out)
        tensors, metadata = safetensors_reader.load(self.out)
        self.assertEqual(set(tensors), {"layers.0.weight", "layers.0.bias"})
        numpy.testing.assert_array_equal(tensors["layers.0.weight"], saved(200, 0, -1, 7, 5))
        # The mean share of this one is a half.
        numpy.testing.assert_array_equal(tensors["layers.0.bias"], saved(200, 1, -1, 7, 1).reshape(7) / 2)
        self.assertEqual(metadata["step"], "200")
        self.assertEqual(metadata["format"], "pt")
        self.assertEqual([name for name in os.listdir(self.directory) if name.endswith(".part")], [])

    def test_a_link_stays_one_and_its_target_is_written(self):
        for target in ("behind.safetensors", os.path.join(self.directory, "behind.safetensors")):
            for content in (None, b"before"):
                with self.subTest(target=target, content=content):
                    behind = os.path.join(self.directory, "behind.safetensors")
                    for path in (self.out, behind):
                        if os.path.lexists(path):
                            os.remove(path)
                    os.symlink(target, self.out)
                    if content is not None:
                        with open(behind, "wb") as file:
                            file.write(content)
                    self.assertEqual(export(self.step(200), self.out).returncode, 0)
                    self.assertEqual(os.readlink(self.out), target)
                    self.assertFalse(os.path.islink(behind))
                    self.assertEqual(safetensors_reader.load(behind)[1]["step"], "200")

    def test_a_pipe_stays_one_and_gets_the_file_and_no_word_more(self):
        pipe, copy = os.path.join(self.directory, "pipe"), os.path.join(self.directory, "copy")
        os.mkfifo(pipe)
        with open(copy, "wb") as out, subprocess.Popen(["cat", pipe], stdout=out) as reader:
            done = export(self.step(200), pipe)
            # A pipe that nobody has opened would keep the reader for ever.
            if done.returncode != 0 or not stat.S_ISFIFO(os.stat(pipe).st_mode):
                reader.kill()
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))
        self.assertEqual(safetensors_reader.load(copy)[1]["step"], "200")
        self.assertEqual([name for name in os.listdir(self.directory) if name.endswith(".part")], [])

    def test_of_a_directory_the_newest_whole_checkpoint_is_exported_and_broken_ones_are_named(self):
        self.assertEqual(export(self.directory, self.out, "--quiet").stdout, "")
        self.assertEqual(safetensors_reader.load(self.out)[1]["step"], "300")
        broken = os.path.join(self.step(300), "shard-1-of-3.safetensors")
        with open(broken, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"!")
        done = export(self.directory, self.out)
        self.assertEqual(done.returncode, 0)
        self.assertIn("tessera: the checkpoint of step 300 is broken: \"%s\": sum is " % broken, done.stderr)
        self.assertEqual(safetensors_reader.load(self.out)[1]["step"], "200")
        done = export(self.step(300), self.out)
        self.assertEqual(done.returncode, 1)
        self.assertIn("sum is", done.stderr)

    def test_what_is_no_checkpoint_and_what_cannot_be_written_are_told(self):
        done = export("/tmp", self.out)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "tessera: \"/tmp\": is no checkpoint, and has none; want a folder step-..., "
                                      "or the one it is in\n")
        done = export(self.directory, os.path.join(self.directory, "none", "out"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("No such file or directory", done.stderr)

    def test_what_is_read_is_not_written_over(self):
        step = self.step(300)
        for name in os.listdir(step):
            out = os.path.join(step, name)
            with open(out, "rb") as file:
                before = file.read()
            for checkpoint in (self.directory, step):
                done = export(checkpoint, out)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("tessera: OUT: \"%s\" would be written over " % out, done.stderr)
            with open(out, "rb") as file:
                self.assertEqual(file.read(), before)

    def test_a_disk_that_fills_up_leaves_no_export_behind(self):
        with open(self.out, "w") as file:
            file.write("an older one")
        failing = dict(os.environ, TESSERA_FAILPOINTS="file.write@2=enospc")
        done = subprocess.run([TESSERA, "export", self.directory, self.out], env=failing, capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("No space left on device", done.stderr)
        with open(self.out) as file:
            self.assertEqual(file.read(), "an older one")
        self.assertEqual(done.stderr.splitlines()[-1],
                         "tessera: export: \"%s\" cannot be written: No space left on device" % self.out)
        self.assertEqual([name for name in os.listdir(self.directory) if name.endswith(".part")], [])

    def test_a_file_of_the_users_is_left_alone_whatever_its_name(self):
        mine = self.out + ".part"
        with open(mine, "w") as file:
            file.write("precious")
        self.assertEqual(export(self.step(200), self.out).returncode, 0)
        with open(mine) as file:
            self.assertEqual(file.read(), "precious")

    def test_what_stdout_goes_to_gets_the_file_and_no_word_more(self):
        with open(self.out, "wb") as out:
            done = subprocess.run([TESSERA, "export", self.step(200), "/dev/stdout"], stdout=out,
                                  stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("42 parameters", done.stderr)
        self.assertEqual(safetensors_reader.load(self.out)[1]["step"], "200")

    def test_a_place_or_a_checkpoint_without_a_name_is_refused(self):
        for arguments, name in (((self.step(200), ""), "OUT"), (("", self.out), "CKPT")):
            done = export(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(name + ": is empty, want a path", done.stderr)


if __name__ == "__main__":
    unittest.main()
