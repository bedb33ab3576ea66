"""Catch2 test programs: one of a concept that wants a process to itself, or one of all the small tests of a folder."""

# What is tested is optimized as it is shipped; a test's own lines need not be, and compile a fifth faster.
COPTS = ["-O1"]

def tessera_test(name, srcs, deps = [], data = [], size = "small", copts = [], **kwargs):
    """A program for one concept: it changes its process (environment, limits, signals), wants data, or takes long."""
    native.cc_test(
        name = name,
        srcs = srcs,
        copts = COPTS + copts,
        data = data,
        size = size,
        deps = deps + ["//tests:catch_main"],
        **kwargs
    )

def tessera_tests(name, groups, deps, size = "medium", **kwargs):
    """One program for the small tests of a folder, which compiles, links and starts in a fraction of their time.

    groups  lists of sources. Those of one list are compiled as one: most of a small test's time are its headers,
            which are then read once. Names in their unnamed namespaces must differ; where they do not, the compiler
            says "redefinition", and one of them gets another name or goes into another list.
    One test alone: bazel test //tests/FOLDER:NAME --test_arg='its name'; one file's: --test_arg='[#FILE]', without .cc.
    """
    native.cc_library(
        name = name + "_sources",
        testonly = True,
        textual_hdrs = [src for group in groups for src in group],
    )
    made = []
    for number, group in enumerate(groups):
        out = "%s_%d.cc" % (name, number + 1)
        lines = ['#include "%s/%s"' % (native.package_name(), src) for src in group]
        native.genrule(
            name = "%s_%d" % (name, number + 1),
            outs = [out],
            cmd = "printf '%%s\\n' %s > $@" % " ".join(["'%s'" % line for line in lines]),
            testonly = True,
        )
        made.append(out)
    native.cc_test(
        name = name,
        srcs = made,
        copts = COPTS,
        args = ["--filenames-as-tags"],
        size = size,
        deps = deps + [":%s_sources" % name, "//tests:catch_main"],
        **kwargs
    )
