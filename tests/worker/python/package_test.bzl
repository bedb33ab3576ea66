"""Tests of the Python package without servers."""

# A unittest file.
def package_test(name, src, data = [], size = "small"):
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//tests/e2e:run_python.sh"],
        args = ["$(location %s)" % src],
        data = [
            src,
            "//tests/worker/python:fake_job.py",
            "//tests/worker/python:libfake_client.so",
            "//worker/python:tessera",
        ] + data,
        tags = ["no_sanitize"],  # Python's own leaks
    )
