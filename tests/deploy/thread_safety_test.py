"""Every field behind a mutex says so, and clang finds whoever touches it without the lock.

g++ ignores the annotations; so does whoever forgets them. Where there is no clang the first half is checked alone."""
import ast
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
FLAGS = ["-std=c++17", "-fpch-instantiate-templates", "-Wthread-safety", "-Werror=thread-safety",
         "-Wno-unknown-warning-option", "-Wno-unknown-pragmas"]
# What most sources include beside what protoc makes: read once for all of them.
HEADERS = ("grpcpp/grpcpp.h", "absl/status/statusor.h", "absl/strings/str_cat.h", "absl/strings/str_format.h",
           "absl/synchronization/mutex.h", "absl/time/time.h", "algorithm", "functional", "map", "string", "vector")
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


def groups():
    """Lists of sources that are compiled as one (library.bzl); what is in no group is a list of its own."""
    grouped, lists = set(), []
    for build in sources("BUILD.bazel"):
        folder = os.path.dirname(build)
        for call in ast.walk(ast.parse(text_of(build))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "tessera_library":
                for keyword in call.keywords:
                    if keyword.arg == "groups":
                        lists += [[os.path.join(folder, name) for name in names]
                                  for names in ast.literal_eval(keyword.value)]
    for group in lists:
        grouped.update(group)
    return lists + [[path] for path in sources(".cc") if path not in grouped]


def has_mutex(path):
    header = path[:-2] + "h"
    # What a rule makes is in no folder of sources.
    return os.path.exists(path) and ("absl::Mutex" in text_of(path) or
                                     os.path.exists(header) and "absl::Mutex " in text_of(header))


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

            headers, precompiled = os.path.join(made, "headers.h"), os.path.join(made, "headers.pch")
            with open(headers, "w") as file:
                file.writelines("#include <%s>\n" % name for name in HEADERS)
                file.writelines('#include "%s.grpc.pb.h"\n' % name[:-len(".proto")] for name in protos)

            def compile_with(*arguments):
                return subprocess.run(["clang++"] + FLAGS + ["-I" + ROOT, "-I" + made, *arguments],
                                      capture_output=True, text=True)

            def clang(path):
                return compile_with("-fsyntax-only", "-include-pch", precompiled, path)

            result = compile_with("-x", "c++-header", headers, "-o", precompiled)
            self.assertEqual(result.returncode, 0, result.stderr)

            # It is found where it is.
            for lock, right in (("absl::MutexLock lock(&mutex_);", True), ("", False)):
                path = os.path.join(made, "violation.cc")
                with open(path, "w") as file:
                    file.write(VIOLATION % lock)
                result = clang(path)
                self.assertEqual(result.returncode == 0, right, result.stderr)
                if not right:
                    self.assertIn("requires holding mutex 'mutex_'", result.stderr)
            # Of each group those that have a mutex, as one file: most of the time goes into headers.
            checked = [group for group in ([path for path in group if has_mutex(path)] for group in groups()) if group]
            self.assertGreater(sum(map(len, checked)), 10)
            files = []
            for number, group in enumerate(checked):
                files.append(os.path.join(made, "group_%d.cc" % number))
                with open(files[-1], "w") as file:
                    file.writelines('#include "%s"\n' % os.path.relpath(path, ROOT) for path in group)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                for group, result in zip(checked, pool.map(clang, files)):
                    self.assertEqual(result.returncode, 0, "%s\n%s" % (group, result.stderr[-4000:]))


if __name__ == "__main__":
    unittest.main()
