"""Catch2 test programs: one of a concept that wants a process to itself, or one of all the small tests of a folder."""

load("//:library.bzl", "grouped")

# What is tested is optimized as it is shipped; a test's own lines need not be, and compile a fifth faster.
TEST_COPTS = ["-O1"]

# A program that computes all the time counts as two units of load (tests/e2e/e2e_test.bzl).
COMPUTES = ["cpu:2"]

def tessera_test(name, srcs = [], deps = [], data = [], size = "small", copts = [], tags = [], **kwargs):
    """A program for one concept: it changes its process (environment, limits, signals), wants data, or takes long.

    Without sources of its own it has the tests of a library among `deps` that is always linked: where the same tests
    are run on several devices they are compiled once.
    """
    native.cc_test(
        name = name,
        srcs = srcs,
        copts = TEST_COPTS + copts,
        data = data,
        size = size,
        tags = tags + COMPUTES,
        deps = deps + ["//tests:catch_main"],
        **kwargs
    )

def tessera_tests(name, groups, deps, size = "medium", tags = [], **kwargs):
    """One program for the small tests of a folder, which compiles, links and starts in a fraction of their time.

    groups  as those of a library (library.bzl)
    One test alone: bazel test //tests/FOLDER:NAME --test_arg='its name'; one file's: --test_arg='[#FILE]', without .cc.
    """
    native.cc_test(
        name = name,
        srcs = grouped(name, groups, testonly = True),
        copts = TEST_COPTS,
        args = ["--filenames-as-tags"],
        size = size,
        tags = tags + COMPUTES,
        deps = deps + ["//tests:catch_main"],
        **kwargs
    )
