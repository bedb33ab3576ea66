"""A fuzz target: one file with LLVMFuzzerTestOneInput, in two programs.

X_fuzz_test  runs the kept corpus and seeded mutations of it; an ordinary test, with any compiler
X_fuzz       libFuzzer; built by deploy/fuzz.sh only, which chooses clang and the sanitizers
"""

def fuzz_target(name, deps):
    source = name + "_fuzz.cc"
    native.cc_test(
        name = name + "_fuzz_test",
        size = "small",
        srcs = [source],
        args = ["tests/fuzz/corpus/" + name + ".inputs"],
        data = ["corpus/" + name + ".inputs"],
        tags = ["cpu:2"],
        deps = deps + ["//tests/fuzz:standalone_main"],
    )
    native.cc_binary(
        name = name + "_fuzz",
        testonly = True,
        srcs = [source],
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = deps,
    )
