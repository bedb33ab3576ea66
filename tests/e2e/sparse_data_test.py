"""Jobs whose rows are sparse, through real processes: the digits, written as XC and LIBSVM text."""
import gzip
import os
import unittest

from cluster import DIGITS, Test, digits, run_to_end, tessera, write_job

PIXELS = 64


def rows(part):
    """(label, pixels) of each image of `part`, train or test."""
    with gzip.open(os.path.join(DIGITS, part + "-images-idx3-ubyte.gz")) as file:
        pixels = file.read()[16:]
    with gzip.open(os.path.join(DIGITS, part + "-labels-idx1-ubyte.gz")) as file:
        labels = file.read()[8:]
    return [(label, pixels[i * PIXELS:(i + 1) * PIXELS]) for i, label in enumerate(labels)]


def line(label, pixels, first):
    """One row of text; indices count from `first`, and what is 0 is left out."""
    return "%d %s\n" % (label, " ".join("%d:%d" % (i + first, x) for i, x in enumerate(pixels) if x))


class SparseData(Test):
    def job(self, data, **keys):
        """A job without batch norm on these files, so that rounding is all in which two runs differ."""
        job = digits(norm=False, epochs=8, rate=0.2, **keys)
        job["data"] = data
        return write_job(self, job, "%s.yaml" % data["format"])

    def text(self, name, content):
        with gzip.open(self.path(name), "wt") as file:
            file.write(content)
        return name

    def xc(self):
        files = {}
        for part in ("train", "test"):
            lines = [line(label, pixels, 0) for label, pixels in rows(part)]
            files[part] = {"features": self.text(part + ".xc.gz", "%d 64 10\n" % len(lines) + "".join(lines))}
        # As idx does it: bytes over 255, over 16/255.
        return {"format": "xc", "directory": self.folder, "normalize": {"stddev": 16.0}, **files}

    def idx(self):
        return {"format": "idx", "directory": DIGITS, "normalize": {"mean": 0.0, "stddev": 16 / 255},
                **{part: {"features": part + "-images-idx3-ubyte.gz", "labels": part + "-labels-idx1-ubyte.gz"}
                   for part in ("train", "test")}}

    def test_sparse_rows_train_as_the_same_rows_in_full(self):
        for method in ({"data_parallel": {}}, {"local_sgd": {"local_steps": 5}}):
            with self.subTest(str(method)):
                sparse = run_to_end(self, self.job(self.xc(), method=method))["final"]
                dense = run_to_end(self, self.job(self.idx(), method=method))["final"]
                self.assertGreater(sparse["test_accuracy"], 0.8)
                for key in ("train_loss", "test_loss"):
                    self.assertAlmostEqual(sparse[key], dense[key], delta=1e-3 * dense[key])

    def test_a_file_that_does_not_fit_the_model_is_refused_with_its_line(self):
        data = self.xc()
        data["train"]["features"] = self.text("wide.xc.gz", "1 65 10\n3 0:1\n")
        code, _, error = tessera("run", self.job(data))
        self.assertEqual(code, 2)
        self.contains(error, "wide.xc.gz:1: header says 65 features, want 64, the product of model.input")

    def test_rows_that_must_stay_sparse_are_not_centred(self):
        data = self.xc()
        data["normalize"]["mean"] = 0.5
        code, _, error = tessera("check", self.job(data))
        self.assertEqual(code, 2)
        self.contains(error, "data.normalize.mean: got 0.5, want 0 with data.format xc")


if __name__ == "__main__":
    unittest.main()
