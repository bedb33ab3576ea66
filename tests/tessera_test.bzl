"""One Catch2 test binary per concept."""

def tessera_test(name, srcs, deps = [], data = [], size = "small", **kwargs):
    native.cc_test(
        name = name,
        srcs = srcs,
        data = data,
        size = size,
        deps = deps + ["//tests:catch_main"],
        **kwargs
    )
