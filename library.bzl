"""Libraries and tests whose sources are compiled in groups: most of a source's time goes into its headers."""

def grouped(name, groups, testonly = False):
    """Sources NAME_1.cc, NAME_2.cc, ... of a group each, and returns their names.

    groups  lists of sources of this package. Those of one list are compiled as one, so that headers are read once.
            Names in their unnamed namespaces must differ; where they do not, the compiler says "redefinition", and one
            of them gets another name or goes into another list. Messages and debuggers name the sources themselves.
    """
    made = []
    for number, group in enumerate(groups):
        out = "%s_%d.cc" % (name, number + 1)
        native.genrule(
            name = "%s_%d" % (name, number + 1),
            srcs = group,
            outs = [out],
            cmd = "for source in $(SRCS); do echo \"#line 1 \\\"$$source\\\"\"; cat $$source; done > $@",
            testonly = testonly,
            visibility = ["//visibility:private"],
        )
        made.append(out)
    return made

def tessera_library(name, groups, **kwargs):
    """The library of a folder, or of a part of it that others of its users do not need; `groups` as above."""
    native.cc_library(
        name = name,
        srcs = grouped(name, groups),
        **kwargs
    )
