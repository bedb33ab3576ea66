"""Runs a unittest file, or one part of its tests where Bazel runs it in several at once (shard_count).

usage: shards.py FILE [unittest's arguments]
"""
import os
import runpy
import sys
import unittest


def cases_of(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from cases_of(item)
        else:
            yield item


def part_of(suite, index, count):
    """Every `count`th test, as those beside each other in a file take about as long."""
    return unittest.TestSuite(list(cases_of(suite))[index::count])


def main():
    index, count = int(os.environ.get("TEST_SHARD_INDEX", 0)), int(os.environ.get("TEST_TOTAL_SHARDS", 1))
    if "TEST_SHARD_STATUS_FILE" in os.environ:
        # That there is such a file tells Bazel that only a part was run.
        with open(os.environ["TEST_SHARD_STATUS_FILE"], "w"):
            pass
    loader = unittest.defaultTestLoader
    # One of them is called for a whole file, the other one where tests are named.
    for name in ("loadTestsFromModule", "loadTestsFromNames"):
        def load(*arguments, load_all=getattr(loader, name), **keys):
            return part_of(load_all(*arguments, **keys), index, count)

        setattr(loader, name, load)
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
