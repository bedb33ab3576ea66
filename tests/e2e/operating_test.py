"""docs/operating.md says what job.proto says, and its example is a job."""
import importlib
import os
import re
import subprocess
import sys
import unittest

from cluster import DIGITS, ROOT, Test, tessera

DOC = os.path.join(ROOT, "docs/operating.md")
SECOND, KIB = 10 ** 9, 1024


def load_protos(folder):
    """(job_pb2, schema_pb2), generated into `folder`."""
    subprocess.run(["protoc", "-I" + ROOT, "--python_out=" + folder, "proto/schema.proto", "proto/job.proto"],
                   check=True, cwd=ROOT)
    sys.path.insert(0, folder)
    return importlib.import_module("proto.job_pb2"), importlib.import_module("proto.schema_pb2")


def number(value, unit):
    if unit == 1:  # duration
        for size, name in ((3600 * SECOND, "h"), (60 * SECOND, "m"), (SECOND, "s"), (SECOND // 1000, "ms")):
            if value % size == 0 and value >= size:
                return "%d%s" % (value // size, name)
    return "%d" % value if value == int(value) and abs(value) < 1e15 else "%g" % value


class Operating(Test):
    @classmethod
    def setUpClass(cls):
        with open(DOC) as file:
            cls.text = file.read()

    def values(self, field, key):
        """The cell that says what a key may be."""
        if key.one_of:
            return ", ".join("`%s`" % value for value in key.one_of)
        if key.path:
            kind = "path"
        elif key.unit:
            kind = {1: "duration", 2: "size"}[key.unit]
        else:
            kind = {field.CPPTYPE_STRING: "text", field.CPPTYPE_BOOL: "`true`, `false`",
                    field.CPPTYPE_DOUBLE: "number"}.get(field.cpp_type, "integer")
        if field.label == field.LABEL_REPEATED:
            kind = "list of %s" % kind
        low = key.HasField("min") and ("above " if key.above_min else "from ") + number(key.min, key.unit)
        high = key.HasField("max") and ("below " if key.below_max else "to ") + number(key.max, key.unit)
        return " ".join(part for part in (kind, low, high) if part)

    def rows(self, schema, message, path=""):
        """The table's rows of all keys that are here."""
        for field in message.fields:
            key = field.GetOptions().Extensions[schema.key]
            name = path + field.name + ("[]" if field.message_type and field.label == field.LABEL_REPEATED else "")
            if field.message_type is None:
                default = "required" if key.required else "`%s`" % key.default_value if key.default_value else "none"
                yield "| `%s` | %s | %s |" % (name, self.values(field, key), default)
            else:
                yield from self.rows(schema, field.message_type, name + ".")

    def test_the_table_of_keys_is_that_of_the_schema(self):
        job, schema = load_protos(self.folder)
        wanted = list(self.rows(schema, job.Job.DESCRIPTOR))
        table = [line for line in self.text.splitlines() if re.match(r"\| `[a-z_.\[\]0-9]+` \|.*\|.*\|.+\|$", line)]
        # The last cell is for people.
        got = [" ".join(line.split()).rsplit(" | ", 1)[0] + " |" for line in table]
        self.assertEqual(got, wanted, "the rows should begin:\n" + "\n".join(wanted))

    def test_the_example_is_a_job_that_trains(self):
        example = re.search(r"^    name: digits$(?:\n    .*|\n)+", self.text, re.M).group(0)
        path = self.path("example.yaml")
        with open(path, "w") as file:
            file.write(re.sub(r"^    ", "", example, flags=re.M))
        code, out, error = tessera("check", path, "--set", "data.directory=" + DIGITS)
        self.assertEqual((code, error), (0, ""))
        code, out, error = tessera("run", path, "--set", "data.directory=" + DIGITS, "--set", "train.epochs=1",
                                   "--set", "train.evaluate_every=1", "--set", "cluster.servers=2")
        self.assertEqual((code, error), (0, ""))

    def test_every_flag_it_names_is_there(self):
        programs = {"tessera run": ["run"], "tessera status": ["status"], "tessera check": ["check"]}
        helps = {name: tessera(*arguments, "--help")[1] for name, arguments in programs.items()}
        for program in ("server", "worker"):
            helps["tessera-" + program] = subprocess.run([os.path.join(ROOT, program, "tessera-" + program), "--help"],
                                                         capture_output=True, text=True, timeout=30).stdout
        for line in self.text.splitlines():
            if not line.startswith("    "):
                continue
            command = line.split("#")[0]
            for name, text in helps.items():
                if re.search(r"(^|[ /])%s " % name, command):
                    for flag in re.findall(r" (--[a-z-]+)", command):
                        self.assertIn(flag, text, line)

    def test_every_field_of_the_report_is_explained(self):
        from cluster import digits, run_to_end
        report = run_to_end(self, digits(steps=5))
        for key in list(report) + [key for value in report.values() if isinstance(value, dict) for key in value]:
            if not key.isdigit():
                self.assertIn("`%s`" % key, self.text)


if __name__ == "__main__":
    unittest.main()
