"""Every field behind a mutex says so, and clang finds whoever touches it without the lock.

g++ ignores the annotations; so does whoever forgets them. Where there is no clang the first half is checked alone."""
import concurrent.futures
import os
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
ROOMS = ("common", "kernels", "server", "worker", "deploy", "bench")
MEMBER = re.compile(r"^ +(?:mutable )?absl::Mutex (\w+);", re.M)
FLAGS = ["-std=c++17", "-fsyntax-only", "-Wthread-safety", "-Werror=thread-safety", "-Wno-unknown-warning-option",
         "-Wno-unknown-pragmas"]
VIOLATION = """
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
class Counter {
 public:
  void Add() { %s ++count_; }
 private:
  absl::Mutex mutex_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};
void Use() { Counter().Add(); }
"""


def sources(*ends):
    for room in ROOMS:
        for folder, _, names in os.walk(os.path.join(ROOT, room)):
            for name in sorted(names):
                if name.endswith(ends):
                    yield os.path.join(folder, name)


def text_of(path):
    with open(path) as file:
        return file.read()


class ThreadSafety(unittest.TestCase):
    def test_there_is_one_kind_of_mutex(self):
        for path in sources(".h", ".cc"):
            # Abseil's conditions wait by the clock that people set; this one is for those that may not.
            if os.path.relpath(path, ROOT) in ("common/base/wakeup.h", "common/base/wakeup.cc"):
                continue
            self.assertNotRegex(text_of(path), r"std::(\w+_)?mutex|std::condition_variable|pthread_mutex", path)

    def test_every_mutex_guards_something(self):
        found = 0
        for path in sources(".h", ".cc"):
            text = text_of(path)
            for name in MEMBER.findall(text):
                # One of a function's own guards what the function says it does: fields end in _ or are of a struct.
                if name == "mutex" and "GUARDED_BY(mutex)" not in text:
                    continue
                found += 1
                self.assertRegex(text, r"ABSL(_PT)?_GUARDED_BY\(%s\)" % name, path)
        self.assertGreater(found, 10)

    @unittest.skipUnless(shutil.which("clang++"), "no clang++ here")
    def test_clang_finds_no_access_without_the_lock(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as made:
            protos = [os.path.relpath(os.path.join(folder, name), ROOT)
                      for folder, _, names in sorted(os.walk(os.path.join(ROOT, "proto")))
                      for name in sorted(names) if name.endswith(".proto")]
            plugin = "--plugin=protoc-gen-grpc=" + shutil.which("grpc_cpp_plugin")
            subprocess.run(["protoc", "-I.", "--cpp_out=" + made, "--grpc_out=" + made, plugin] + protos, cwd=ROOT,
                           check=True)

            def clang(path):
                return subprocess.run(["clang++"] + FLAGS + ["-I" + ROOT, "-I" + made, path], capture_output=True,
                                      text=True)

            # It is found where it is.
            for lock, right in (("absl::MutexLock lock(&mutex_);", True), ("", False)):
                path = os.path.join(made, "violation.cc")
                with open(path, "w") as file:
                    file.write(VIOLATION % lock)
                checked = clang(path)
                self.assertEqual(checked.returncode == 0, right, checked.stderr)
                if not right:
                    self.assertIn("requires holding mutex 'mutex_'", checked.stderr)
            with_mutex = [path for path in sources(".cc") if "absl::Mutex" in text_of(path) or
                          os.path.exists(path[:-2] + "h") and "absl::Mutex " in text_of(path[:-2] + "h")]
            self.assertGreater(len(with_mutex), 10)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                for path, checked in zip(with_mutex, pool.map(clang, with_mutex)):
                    self.assertEqual(checked.returncode, 0, path + "\n" + checked.stderr[-4000:])


if __name__ == "__main__":
    unittest.main()
