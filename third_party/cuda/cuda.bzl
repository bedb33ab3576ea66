"""The CUDA toolkit of this machine, and one rule for .cu files."""

def cuda_only():
    """For target_compatible_with: such targets are left out of builds without --config=cuda."""
    return select({
        "//third_party/cuda:enabled": [],
        "//conditions:default": ["//third_party/cuda:absent"],
    })

def cuda_object(name, src, architectures, deps, ptx = True, **kwargs):
    """The object of one .cu file, compiled by nvcc.

    architectures  compute capabilities without their dot
    deps           cc_library targets whose headers it includes
    ptx            of the last one there is PTX as well, which later ones can compile
    """
    codes = ["-gencode arch=compute_%s,code=sm_%s" % (a, a) for a in architectures]
    if ptx:
        codes.append("-gencode arch=compute_%s,code=compute_%s" % (architectures[-1], architectures[-1]))
    _headers(name = name + "_headers", deps = deps)
    native.genrule(
        name = name,
        srcs = [src, name + "_headers", "@cuda//:nvcc"],
        outs = [name + ".o"],
        # No fused multiply-adds, as everywhere in this build: one rounding for each operation.
        cmd = " ".join([
            "$(location @cuda//:nvcc) -std=c++17 -O3 -fmad=false --expt-relaxed-constexpr",
            "-Xcompiler -fPIC,-Wall -I.",
        ] + codes + ["-c $(location %s) -o $@" % src]),
        **kwargs
    )

def _headers_impl(ctx):
    headers = depset(transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps])
    return [DefaultInfo(files = headers, runfiles = ctx.runfiles(transitive_files = headers))]

_headers = rule(
    implementation = _headers_impl,
    attrs = {"deps": attr.label_list(providers = [CcInfo])},
)

_PLACES = ["/usr/local/cuda", "/usr/lib/cuda", "/opt/cuda"]

_BUILD = """package(default_visibility = ["//visibility:public"])

filegroup(
    name = "nvcc",
    srcs = ["nvcc.sh"],
)

cc_library(
    name = "headers",
    hdrs = glob(["include/**"]),
    includes = ["include"],
)

cc_library(
    name = "runtime",
    deps = [":headers"],
    linkopts = [
        "-L{root}/lib64",
        "-Wl,-rpath,$$ORIGIN/lib",
        "-Wl,-rpath,{root}/lib64",
        "-lcublas",
        "-lcudart",
    ],
)
"""

_ABSENT = """package(default_visibility = ["//visibility:public"])

filegroup(
    name = "nvcc",
    srcs = ["nvcc.sh"],
)

cc_library(name = "headers")

cc_library(name = "runtime")
"""

def _toolkit_impl(repository_ctx):
    named = repository_ctx.os.environ.get("CUDA_HOME", "")
    for root in [named] if named else _PLACES:
        if repository_ctx.path(root + "/bin/nvcc").exists:
            repository_ctx.symlink(root + "/include", "include")
            repository_ctx.file("nvcc.sh", "#!/bin/sh\nexec %s/bin/nvcc \"$@\"\n" % root)
            repository_ctx.file("BUILD.bazel", _BUILD.format(root = root))
            repository_ctx.file("present.bzl", "PRESENT = True\n")
            return

    # Every build reads this, so that what is missing is said only to those that compile with it.
    missing = "--config=cuda: no bin/nvcc in %s, want the CUDA 13 toolkit; say where it is with CUDA_HOME" % (
        named or ", ".join(_PLACES)
    )
    repository_ctx.file("nvcc.sh", "#!/bin/sh\necho \"%s\" >&2\nexit 1\n" % missing)
    repository_ctx.file("BUILD.bazel", _ABSENT)
    repository_ctx.file("present.bzl", "PRESENT = False\n")

# Looks for the toolkit in CUDA_HOME where that is set, else where it usually is.
cuda_toolkit = repository_rule(
    implementation = _toolkit_impl,
    environ = ["CUDA_HOME"],
    local = True,
)
