"""Jobs whose rows are in NumPy files, through real processes: the digits, written as .npy without NumPy."""
import gzip
import os
import struct
import unittest

from cluster import DIGITS, DIGITS_ROWS, Test, digits, run_to_end, tessera, write_job

PARTS = ("train", "test")


def npy(descr, shape, values, version=1):
    """The bytes that np.save writes."""
    header = "{'descr': %r, 'fortran_order': False, 'shape': %r, }" % (descr, shape)
    size = "<H" if version == 1 else "<I"
    filled = -(-(8 + struct.calcsize(size) + len(header) + 1) // 64) * 64
    header = header.ljust(filled - 8 - struct.calcsize(size) - 1) + "\n"
    return b"\x93NUMPY" + bytes((version, 0)) + struct.pack(size, len(header)) + header.encode() + values


def npy_of(descr, shape, numbers, version):
    """The same for integers, which are written as numbers of the type."""
    letter = {"u1": "B", "i1": "b", "u2": "H", "i4": "i", "i8": "q", "f4": "f", "f8": "d"}[descr[1:]]
    order = descr[0].replace("|", "<")
    return npy(descr, shape, struct.pack("%s%d%s" % (order, len(numbers), letter), *numbers), version)


def idx(name, head):
    """The values of an IDX file of the digits."""
    with gzip.open(os.path.join(DIGITS, name)) as file:
        return file.read()[head:]


class NumpyData(Test):
    def write(self, name, content):
        with (gzip.open if name.endswith(".gz") else open)(self.path(name), "wb") as file:
            file.write(content)
        return name

    def job(self, features, labels, ending="", version=1, **keys):
        """The digits, images of 1 x 8 x 8; numbers of these types, such as "<f4"."""
        files = {}
        for part in PARTS:
            classes = idx(part + "-labels-idx1-ubyte.gz", 8)
            arrays = {"features": (features, (len(classes), 1, 8, 8), idx(part + "-images-idx3-ubyte.gz", 16)),
                      "labels": (labels, (len(classes),), classes)}
            files[part] = {key: self.write("%s-%s.npy%s" % (part, key, ending), npy_of(*array, version))
                           for key, array in arrays.items()}
        job = digits(**keys)
        job["data"].update(files, format="npy", directory=self.folder)
        return job

    def test_digits_train_to_the_same_bits_as_from_idx_files(self):
        for method in ({"data_parallel": {}}, {"local_sgd": {"local_steps": 5}}):
            with self.case(str(method)):
                want = run_to_end(self, digits(method=method))
                self.assertGreater(want["final"]["test_accuracy"], 0.8)
                for types in (("|u1", "<i8"), ("|u1", ">i4", ".gz", 2)):
                    got = run_to_end(self, self.job(*types, method=method))
                    self.assertEqual(got["parameters_hash"], want["parameters_hash"])
                    self.assertEqual(got["final"], want["final"])

    def test_numbers_that_are_no_bytes_are_taken_as_they_are(self):
        # A u1 of 16 is 16/255; here 16 is 16, whatever its type.
        reports = [run_to_end(self, self.job(features, "|i1", epochs=2, normalize={"mean": 4.9, "stddev": 6.0}))
                   for features in ("<u2", ">f4", "<f8")]
        self.assertEqual(len({report["parameters_hash"] for report in reports}), 1)
        self.assertGreater(reports[0]["final"]["test_accuracy"], 0.8)

    def test_files_that_do_not_fit_are_refused_by_name_before_anything_starts(self):
        job = self.job("|u1", "<i8")
        for name, content, *messages in (
                ("train-labels.npy", npy("|O", (DIGITS_ROWS,), b"\x80\x04."),
                 "Python objects, which would have to be unpickled"),
                ("train-features.npy", npy("|u1", (DIGITS_ROWS, 65), bytes(DIGITS_ROWS * 65)),
                 "want 64, the product of model.input"),
                ("test-features.npy", npy_of("<f4", (450, 64), [1] * (450 * 64), 1),
                 "values are numbers that are taken as they are, want bytes, which are divided by 255"),
                ("train-features.npy", b"version https://git-lfs.github.com/spec/v1\n", "content is a Git LFS pointer"),
                ("train-features.npy", npy("|u1", (DIGITS_ROWS, 8, 4, 2), bytes(DIGITS_ROWS * 64)),
                 "rows are [8, 4, 2], want [2, 8, 4], which is model.input", "save x.transpose(0, 3, 1, 2)"),
                ("test-labels.npy", npy_of("<i8", (450, 1), [10] * 450, 1), "label is 10, want 0 to 9")):
            with self.case(name):
                # Rows of any order feed a model of 64 inputs; an image has one.
                job["model"]["input"] = [2, 8, 4] if messages[0].startswith("rows are") else [64]
                with open(self.path(name), "rb") as file:
                    kept = file.read()
                self.write(name, content)
                code, _, error = tessera("run", write_job(self, job))
                self.assertEqual(code, 2)
                self.contains(error, name, *messages)
                self.write(name, kept)

    def test_labels_that_are_missing_are_told_by_the_check(self):
        job = self.job("|u1", "<i8")
        del job["data"]["test"]["labels"]
        code, _, error = tessera("check", write_job(self, job))
        self.assertEqual(code, 2)
        self.contains(error, "data.test.labels: missing, want a path: npy files have their labels in a file of their")


if __name__ == "__main__":
    unittest.main()
