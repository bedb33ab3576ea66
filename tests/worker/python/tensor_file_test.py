"""save_tensors and load_tensors: what is written is read by another reader, and what is no such file is refused."""
import json
import os
import sys
import tempfile
import unittest

sys.path[:0] = [os.path.join("worker", "python"), os.path.join("tests", "common", "checkpoint")]
import numpy as np  # noqa: E402
import tessera  # noqa: E402
from safetensors_reader import load  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


class TensorFile(unittest.TestCase):
    def setUp(self):
        self.path = os.path.join(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")), "model.safetensors")

    def write(self, header, data=b"", length=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        with open(self.path, "wb") as file:
            file.write((len(text) if length is None else length).to_bytes(8, "little") + text + data)

    def refused(self, wrong):
        with self.assertRaisesRegex(ValueError, wrong) as caught:
            tessera.load_tensors(self.path)
        self.assertIn(self.path, str(caught.exception))

    def test_all_kinds_of_arrays_come_back(self):
        tensors = {"f": np.arange(6, dtype="f4").reshape(2, 3), "scalar": np.float32(3), "none": np.zeros((0, 4), "f4"),
                   "half": np.array([1.5, -2], "f2"), "long": np.array([-1, 2 ** 40]),
                   "bytes": np.arange(3, dtype="u1"),
                   "double": np.array([0.1]), "swapped": np.array([1, 2], ">f4"), "turned": np.eye(3, 2, dtype="f4").T,
                   "flag": np.array([True, False]), "a name: \"\u00e4\n\"": np.ones(1, "f4")}
        tessera.save_tensors(tensors, self.path, {"who": "me"})
        metadata = {}
        read = tessera.load_tensors(self.path, metadata)
        other, other_metadata = load(self.path)
        self.assertEqual((metadata, other_metadata), ({"who": "me"}, {"who": "me"}))
        self.assertEqual(list(read), list(tensors))
        self.assertEqual(set(other), set(tensors))
        for name, array in tensors.items():
            self.assertEqual((read[name].shape, read[name].dtype), (array.shape, array.dtype.newbyteorder("=")), name)
            np.testing.assert_array_equal(read[name], array)
            np.testing.assert_array_equal(other[name], array)
        read["f"][0, 0] = 9  # They are one's own.

    def test_the_data_begins_at_a_round_place(self):
        tessera.save_tensors({"f": np.zeros(1, "f4")}, self.path)
        with open(self.path, "rb") as file:
            self.assertEqual((8 + int.from_bytes(file.read(8), "little")) % 64, 0)

    def test_bf16_is_read_as_float32(self):
        self.write({"x": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}},
                   np.array([0x3FC0, 0xC000, 0x7F80], "<u2").tobytes())
        read = tessera.load_tensors(self.path)["x"]
        self.assertEqual(read.dtype, np.float32)
        np.testing.assert_array_equal(read, np.array([1.5, -2, np.inf], "f4"))

    @unittest.skipUnless(torch, "python3-torch is not installed")
    def test_tensors_of_pytorch_are_taken(self):
        tensors = {"f": torch.arange(6.).reshape(2, 3).requires_grad_(), "turned": torch.arange(6.).reshape(2, 3).t(),
                   "b": torch.tensor([1.5, -2]).bfloat16(), "count": torch.tensor(7), "half": torch.ones(2).half()}
        tessera.save_tensors(tensors, self.path)
        read = tessera.load_tensors(self.path)
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(read[name], tensor.detach().float().numpy() if name == "b" else
                                          tensor.detach().numpy())
        with open(self.path, "rb") as file:
            self.assertIn(b'"BF16"', file.read())

    def test_what_is_no_tensor_is_not_written(self):
        tessera.save_tensors({"f": np.zeros(1, "f4")}, self.path)
        for tensors, wrong in (({"x": [1, 2]}, "x is a list"), ({"x": np.array(["a"])}, "x is of <U1"),
                               ({"": np.zeros(1)}, "'' is no name"), ({"__metadata__": np.zeros(1)}, "is no name"),
                               ({"x": np.zeros(1, "c8")}, "x is of complex64")):
            with self.assertRaisesRegex(ValueError, wrong):
                tessera.save_tensors(tensors, self.path)
        with self.assertRaisesRegex(ValueError, "metadata are"):
            tessera.save_tensors({}, self.path, {"n": 1})
        self.assertEqual(list(tessera.load_tensors(self.path)), ["f"])
        self.assertEqual(os.listdir(os.path.dirname(self.path)), ["model.safetensors"])
        with self.assertRaises(OSError):
            tessera.save_tensors({}, os.path.join(self.path, "none"))

    def test_a_file_that_is_cut_is_refused_wherever_it_is(self):
        tessera.save_tensors({"f": np.arange(6, dtype="f4"), "g": np.arange(2, dtype="f4")}, self.path)
        with open(self.path, "rb") as file:
            data = file.read()
        for length in [*range(0, 9), 100, len(data) - 9, len(data) - 1]:
            with open(self.path, "wb") as file:
                file.write(data[:length])
            self.refused("it ends after|is said to take|may be cut|leave a hole")
        with open(self.path, "wb") as file:
            file.write(data + b"x")
        self.refused("1 bytes at its end are of no tensor")

    def test_headers_that_lie_are_refused(self):
        for header, data, wrong in (
                (b"{", b"", "is no JSON"), (b"\xff\xff", b"", "is no JSON"), (b"[]", b"", "want names"),
                (b"[" * 100000, b"", "is no JSON"),
                (b'{"x": %s, "x": %s}' % ((json.dumps(F32).encode(),) * 2), bytes(8), "\"x\" is given twice"),
                ({"x": dict(F32, data_offsets=[0, 12])}, bytes(12), "x has 12 bytes, want 8"),
                ({"x": dict(F32, data_offsets=[8, 0])}, bytes(8), "x has -8 bytes"),
                ({"x": dict(F32, data_offsets=[8, 16])}, bytes(8), "x ends at byte 16 of the data, which has 8"),
                ({"x": dict(F32, data_offsets=[-8, 0])}, bytes(8), "want its begin and its end"),
                ({"x": dict(F32, data_offsets=[0])}, bytes(8), "want its begin and its end"),
                ({"x": dict(F32, data_offsets=[4, 12])}, bytes(12), "x begins at byte 4 .*leave a hole"),
                ({"x": F32, "y": dict(F32, data_offsets=[4, 12])}, bytes(12), "y begins at byte 4 .*overlap"),
                ({"x": F32, "y": F32}, bytes(8), "y begins at byte 0 .*overlap"),
                ({"x": dict(F32, dtype="F31")}, bytes(8), "x is of 'F31'"), ({"x": 3}, b"", "x is 3"),
                ({"x": dict(F32, dtype=["F32"])}, bytes(8), "x is of"),
                ({"x": dict(F32, shape=[-2])}, bytes(8), r"x has shape \[-2\]"),
                ({"x": dict(F32, shape=[2.0])}, bytes(8), "want a list of sizes"),
                ({"x": dict(F32, shape=[True, 2])}, bytes(8), "want a list of sizes"),
                ({"x": dict(F32, shape=[2 ** 62, 2 ** 62])}, bytes(8), "x has 8 bytes, want"),
                ({"": F32}, bytes(8), "a tensor has no name"), ({"__metadata__": {"a": 1}}, b"", "__metadata__ is"),
                ({"__metadata__": []}, b"", "__metadata__ is")):
            with self.subTest(str(header)[:80]):
                self.write(header, data)
                self.refused(wrong)
        self.write(b"{}", length=2 ** 63)
        self.refused("is said to take")

    def test_many_tensors_are_quick(self):
        count = 100_000
        tessera.save_tensors({"tensor.%d" % i: np.full(1, i, "f4") for i in range(count)}, self.path)
        read = tessera.load_tensors(self.path)
        self.assertEqual((len(read), read["tensor.99999"][0]), (count, 99999))


if __name__ == "__main__":
    unittest.main()
