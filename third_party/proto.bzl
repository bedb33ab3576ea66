"""One rule for .proto files, run by the distribution's protoc and grpc_cpp_plugin."""

def tessera_proto_library(name, srcs, deps = [], grpc = [], visibility = None):
    """A cc_library of the generated code.

    srcs  the .proto files of this package, imported by full path from the root
    deps  other tessera_proto_library targets
    grpc  those of srcs that declare services
    """
    outs = []
    for src in srcs:
        stem = src[:-len(".proto")]
        outs += [stem + ".pb.h", stem + ".pb.cc"]
        if src in grpc:
            outs += [stem + ".grpc.pb.h", stem + ".grpc.pb.cc"]
    package = native.package_name()
    native.filegroup(
        name = name + "_protos",
        srcs = srcs + [d + "_protos" for d in deps],
        visibility = ["//visibility:public"],
    )
    native.genrule(
        name = name + "_generate",
        srcs = [":" + name + "_protos"],
        outs = outs,
        cmd = " ".join([
            "protoc -I. --cpp_out=$(GENDIR)",
            " ".join([package + "/" + s for s in srcs]),
        ] + ([
            "&& protoc -I. --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin --grpc_out=$(GENDIR)",
            " ".join([package + "/" + s for s in grpc]),
        ] if grpc else [])),
    )
    native.cc_library(
        name = name,
        srcs = [o for o in outs if o.endswith(".cc")],
        hdrs = [o for o in outs if o.endswith(".h")],
        copts = ["-w"],
        deps = deps + ["@system//:protobuf"] + (["@system//:grpc"] if grpc else []),
        visibility = visibility,
    )
