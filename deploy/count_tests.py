"""Counts test cases from a `bazel test` log and the test logs it names; prints the closing line.

usage: count_tests.py BAZEL_LOG BAZEL_EXIT_CODE TAG_FILTER

A Catch2 binary counts as many tests as it has test cases, a Python unittest as many as it ran, any other test as
one. A target that did not build or end counts as one failure. Skipped tests and targets that the filter left out are
listed as excluded. Exits with 1 if anything failed or nothing ran.

Catch2 2 cannot skip: a test case that does so prints a line `skipped: REASON`, is listed and does not count as passed.
"""
import collections
import pathlib
import re
import subprocess
import sys

VERDICT = re.compile(r"^(//\S+)\s+(\(cached\) )?(PASSED|FAILED|TIMEOUT|FLAKY|NO STATUS|INCOMPLETE)")


SKIPPED = re.compile(r"^(//\S+)\s+SKIPPED$", re.M)
# By a Catch2 test case, and as unittest -v says it.
CASE_SKIPPED = re.compile(r"^skipped: (.*)$", re.M)
TEST_SKIPPED = re.compile(r"\.\.\. skipped (['\"])(.*)\1$", re.M)


def left_out(text, listed):
    """Targets that Bazel did not build here, by its log, and that are not listed already."""
    return sorted(set(SKIPPED.findall(text)) - set(listed))


def count(text):
    """(passed, failed, skipped) from the log of one test, or None when it does not say."""
    found = re.findall(r"^All tests passed \(.* in (\d+) test cases?\)", text, re.M)
    skipped = len(CASE_SKIPPED.findall(text))
    if found:
        return max(0, int(found[-1]) - skipped), 0, skipped
    found = re.findall(r"^test cases:\s*(\d+) \|(?:\s*(\d+) passed \|)?\s*(\d+) failed", text, re.M)
    if found:
        _, passed, failed = found[-1]
        return max(0, int(passed or 0) - skipped), int(failed), skipped
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


def why_skipped(text, skipped):
    """[(tests, reason)] of a log with so many skipped tests; the reason is "" where it does not say."""
    reasons = CASE_SKIPPED.findall(text) + [reason for _, reason in TEST_SKIPPED.findall(text)]
    counts = list(collections.Counter(reasons).items())
    untold = skipped - len(reasons)
    return [(number, reason) for reason, number in counts] + ([(untold, "")] if untold > 0 else [])


def logs_of(target, root="bazel-testlogs"):
    """The texts of one target's logs: one, or one for each part where Bazel ran it in several. [""]: there is none."""
    folder = pathlib.Path(root) / target.lstrip("/").replace(":", "/")
    # Those of an earlier run lie beside them where it had another number of parts.
    found = sorted(folder.glob("test.log")) + sorted(folder.glob("shard_*_of_*/test.log"))
    if not found:
        return [""]
    parts = {path: path.parent.name.rpartition("_of_")[2] for path in found}
    latest = parts[max(found, key=lambda path: path.stat().st_mtime)]
    return [path.read_text(errors="replace") for path in found if parts[path] == latest]


def count_all(logs, ok):
    """The sum of `count` over the logs of one target, of which `ok` says whether it passed."""
    counted = [count(log) for log in logs]
    # A part that does not say ended before its end where the target failed, and is one test otherwise.
    passed, failed, skipped = map(sum, zip(*[each or ((1, 0, 0) if ok else (0, 1, 0)) for each in counted]))
    return (passed, failed, skipped) if ok or failed else (0, 1, 0)


def main():
    log, bazel_exit, tag_filter = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    passed = failed = 0
    text = pathlib.Path(log).read_text(errors="replace")
    for line in text.splitlines():
        match = VERDICT.match(line)
        if not match:
            continue
        ok = match.group(3) == "PASSED"
        logs = logs_of(match.group(1))
        counted = count_all(logs, ok)
        passed += counted[0]
        failed += counted[1]
        for number, reason in why_skipped("".join(logs), counted[2]):
            print("excluded: %d test%s of %s (skipped%s)" % (
                number, "" if number == 1 else "s", match.group(1), ": " + reason if reason else ""))
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
