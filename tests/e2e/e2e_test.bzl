"""Tests in Python with the real programs."""

# A unittest file. It finds the programs, the jobs and the built-in data where they lie in the tree.
# It counts as three units of load, of which deploy/test.sh has eight for two cores. `waits`: most of its time it waits
# for leases, pings and restarts, and it counts as one. Files of more than a minute are run in parts (shard_count), so
# that none of them is left over when all others are done.
def e2e_test(name, src, data = [], size = "medium", tags = [], arguments = [], waits = False, **kwargs):
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//tests/e2e:run_python.sh"],
        args = ["$(location %s)" % src] + arguments,
        data = [
            src,
            "//deploy/cli:tessera",
            "//deploy/data/optdigits",
            "//deploy/jobs",
            "//server:tessera-server",
            "//tests/e2e:language",
            "//worker:tessera-worker",
        ] + data,
        tags = tags + ["cpu:%d" % (1 if waits else 3)],
        **kwargs
    )
