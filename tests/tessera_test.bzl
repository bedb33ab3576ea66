"""One Catch2 test binary per concept."""

def tessera_test(name, srcs, deps = [], data = [], size = "small", copts = [], **kwargs):
    native.cc_test(
        name = name,
        srcs = srcs,
        # What is tested is optimized as it is shipped; a test's own lines need not be, and compile a fifth faster.
        copts = ["-O1"] + copts,
        data = data,
        size = size,
        deps = deps + ["//tests:catch_main"],
        **kwargs
    )
