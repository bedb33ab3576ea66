"""Counts test cases from a `bazel test` log and the test logs it names; prints the closing line.

usage: count_tests.py BAZEL_LOG BAZEL_EXIT_CODE TAG_FILTER

A Catch2 binary counts as many tests as it has test cases, a Python unittest as many as it ran, any other test as
one. A target that did not build or end counts as one failure. Skipped tests and targets that the filter left out are
listed as excluded. Exits with 1 if anything failed or nothing ran.
"""
import pathlib
import re
import subprocess
import sys

VERDICT = re.compile(r"^(//\S+)\s+(\(cached\) )?(PASSED|FAILED|TIMEOUT|FLAKY|NO STATUS|INCOMPLETE)")


SKIPPED = re.compile(r"^(//\S+)\s+SKIPPED$", re.M)


def left_out(text, listed):
    """Targets that Bazel did not build here, by its log, and that are not listed already."""
    return sorted(set(SKIPPED.findall(text)) - set(listed))


def count(text):
    """(passed, failed, skipped) from the log of one test, or None when it does not say."""
    found = re.findall(r"^All tests passed \(.* in (\d+) test cases?\)", text, re.M)
    if found:
        return int(found[-1]), 0, 0
    found = re.findall(r"^test cases:\s*(\d+) \|(?:\s*(\d+) passed \|)?\s*(\d+) failed", text, re.M)
    if found:
        _, passed, failed = found[-1]
        return int(passed or 0), int(failed), 0
    found = re.findall(r"^Ran (\d+) tests? in .*\n\n(OK|FAILED)(?: \((.*)\))?$", text, re.M)
    if not found:
        return None
    ran, _, details = found[-1]
    numbers = dict(item.split("=") for item in details.split(", ") if "=" in item)
    # One test can fail in several subtests.
    broken = {name for name in re.findall(r"^(?:FAIL|ERROR): (\S+ \([^)]*\))", text, re.M)}
    failed = min(len(broken), int(ran)) or int("failures" in numbers or "errors" in numbers)
    skipped = int(numbers.get("skipped", 0))
    return max(0, int(ran) - failed - skipped), failed, skipped


def cases(target):
    """count() of one target's log, or None when there is none."""
    path = pathlib.Path("bazel-testlogs") / target.lstrip("/").replace(":", "/") / "test.log"
    try:
        return count(path.read_text(errors="replace"))
    except OSError:
        return None


def main():
    log, bazel_exit, tag_filter = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    passed = failed = 0
    text = pathlib.Path(log).read_text(errors="replace")
    for line in text.splitlines():
        match = VERDICT.match(line)
        if not match:
            continue
        ok = match.group(3) == "PASSED"
        counted = cases(match.group(1)) or ((1, 0, 0) if ok else (0, 1, 0))
        if not ok and counted[1] == 0:
            counted = (0, 1, 0)
        passed += counted[0]
        failed += counted[1]
        if counted[2] > 0:
            print("excluded: %d tests of %s (skipped)" % (counted[2], match.group(1)))
    listed = []
    for tag in filter(None, tag_filter.split(",")):
        query = "attr(tags, '\\b%s\\b', tests(//...))" % tag.lstrip("-")
        names = subprocess.run(["bazel", "query", query], capture_output=True, text=True).stdout.split()
        for name in names:
            print("excluded: %s (%s)" % (name, tag.lstrip("-")))
        listed += names
    for name in left_out(text, listed):
        print("excluded: %s (no CUDA toolkit to build it with)" % name)
    if bazel_exit != 0 and failed == 0:
        failed = 1
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
