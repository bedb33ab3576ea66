"""Tests of the control plane once more, with a coordinator that is saved and loaded after every event."""

# The programs of other tests, as they are: nothing is compiled for these.
def reloaded_tests(names):
    for name in names:
        native.sh_test(
            name = "reloaded_" + name,
            size = "medium",
            srcs = ["reloaded.sh"],
            args = ["$(location :%s)" % name],
            data = [":" + name],
        )
