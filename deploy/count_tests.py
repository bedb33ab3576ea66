"""Counts test cases from a `bazel test` log and the test logs it names; prints the closing line.

usage: count_tests.py BAZEL_LOG BAZEL_EXIT_CODE TAG_FILTER

A Catch2 binary counts as many tests as it has test cases, any other test as one. A target that did not
build or end counts as one failure. Exits with 1 if anything failed or nothing ran.
"""
import pathlib
import re
import subprocess
import sys

VERDICT = re.compile(r"^(//\S+)\s+(\(cached\) )?(PASSED|FAILED|TIMEOUT|FLAKY|NO STATUS|INCOMPLETE)")


def cases(target):
    """(passed, failed) of one target from its log, or None when the log does not say."""
    path = pathlib.Path("bazel-testlogs") / target.lstrip("/").replace(":", "/") / "test.log"
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return None
    found = re.findall(r"^All tests passed \(.* in (\d+) test cases?\)", text, re.M)
    if found:
        return int(found[-1]), 0
    found = re.findall(r"^test cases:\s*(\d+) \|(?:\s*(\d+) passed \|)?\s*(\d+) failed", text, re.M)
    if found:
        _, passed, failed = found[-1]
        return int(passed or 0), int(failed)
    return None


def main():
    log, bazel_exit, tag_filter = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    passed = failed = 0
    for line in pathlib.Path(log).read_text(errors="replace").splitlines():
        match = VERDICT.match(line)
        if not match:
            continue
        ok = match.group(3) == "PASSED"
        counted = cases(match.group(1)) or ((1, 0) if ok else (0, 1))
        if not ok and counted[1] == 0:
            counted = (0, 1)
        passed += counted[0]
        failed += counted[1]
    for tag in filter(None, tag_filter.split(",")):
        query = "attr(tags, '\\b%s\\b', tests(//...))" % tag.lstrip("-")
        names = subprocess.run(["bazel", "query", query], capture_output=True, text=True).stdout.split()
        for name in names:
            print("excluded: %s (%s)" % (name, tag.lstrip("-")))
    if bazel_exit != 0 and failed == 0:
        failed = 1
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
