#!/usr/bin/python3
"""Writes the pages of docs/operating/reference from what the code itself says: job keys from proto/job.proto, the
status from proto/status.proto, the RPCs from all services of proto/ with the roles of common/rpc/security.cc, and the
metrics from server/monitor. usage: reference.py [--check] [--root DIR]

With --check nothing is written, and pages that are not current are named with exit code 1. A key or a status field
without a comment is an error. Debian's Python has the protobuf package that this wants.
"""
import argparse
import glob
import importlib
import os
import re
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2

PAGES = "docs/operating/reference"
# Some metrics are rows of this table, with what the report shows.
STATUS_FIELDS = "server/control/status_fields.cc"
SECOND = 10 ** 9
FIELD = descriptor_pb2.FieldDescriptorProto
# Numbers of FileDescriptorProto, DescriptorProto and ServiceDescriptorProto: the paths of source_code_info.
MESSAGE, SERVICE, NESTED, FIELDS, RPCS = 4, 6, 3, 2, 2


def link(text):
    """Names of pages become links from a reference page, names of source files become code."""
    def page(found):
        path, anchor = found.group(1), found.group(2) or ""
        name = anchor[1:] if anchor else os.path.basename(path)
        name = name if "_" in name else name.replace("-", " ")
        return "[%s](%s)" % (name, os.path.relpath("docs/" + path + ".md", PAGES) + anchor)

    text = re.sub(r"docs/([\w/]+)\.md(#[\w-]+)?", page, text)
    return re.sub(r"(?<![\w`/(\]])(\(?)((?:common|server|worker)/[\w/]+\.h)", r"\1`\2`", text)


def sentence(comment):
    """A comment as one cell. Indented lines are formulas, or a status code and when it comes."""
    parts = []
    for line in comment.rstrip("\n").split("\n"):
        code = re.match(r" +([A-Z_]{4,})\s{2,}(.*)", line[1:])
        if code:
            parts.append("`%s`: %s." % code.groups())
        elif line.startswith("   "):
            parts.append("`%s`" % line.strip())
        else:
            parts.append(line.strip())
    return link(" ".join(part for part in parts if part)).replace("|", "\\|")


class Comments:
    """What stands in front of each declaration, by full name."""

    def __init__(self, files):
        self.of = {}
        for file in files:
            texts = {tuple(place.path): place.leading_comments or place.trailing_comments
                     for place in file.source_code_info.location}
            for index, message in enumerate(file.message_type):
                self.take(texts, (MESSAGE, index), message, file.package + ".")
            for index, service in enumerate(file.service):
                path = (SERVICE, index)
                for number, method in enumerate(service.method):
                    self.of["%s.%s" % (service.name, method.name)] = texts.get(path + (RPCS, number), "")

    def take(self, texts, path, message, scope):
        name = scope + message.name
        self.of[name] = texts.get(path, "")
        for index, field in enumerate(message.field):
            self.of[name + "." + field.name] = texts.get(path + (FIELDS, index), "")
        for index, nested in enumerate(message.nested_type):
            self.take(texts, path + (NESTED, index), nested, name + ".")

    def sentence(self, name):
        text = sentence(self.of[name])
        if not text:
            sys.exit("reference.py: %s has no comment in proto/" % name)
        return text


def table(*columns):
    return ["| %s |" % " | ".join(columns), "|%s|" % "|".join("---" for _ in columns)]


def number(value, unit):
    if unit == 1:  # duration
        for size, name in ((3600 * SECOND, "h"), (60 * SECOND, "m"), (SECOND, "s"), (SECOND // 1000, "ms")):
            if value % size == 0 and value >= size:
                return "%d%s" % (value // size, name)
    return "%d" % value if value == int(value) and abs(value) < 1e15 else "%g" % value


def allowed(field, key):
    """The cell that says what a key may be."""
    if key.one_of:
        return ", ".join("`%s`" % value for value in key.one_of)
    if key.path:
        kind = "path"
    elif key.unit:
        kind = {1: "duration", 2: "size"}[key.unit]
    else:
        kind = {FIELD.TYPE_STRING: "text", FIELD.TYPE_BOOL: "`true`, `false`",
                FIELD.TYPE_DOUBLE: "number"}.get(field.type, "integer")
    if field.label == field.LABEL_REPEATED:
        kind = "list of %s" % kind
    low = key.HasField("min") and ("above " if key.above_min else "from ") + number(key.min, key.unit)
    high = key.HasField("max") and ("below " if key.below_max else "to ") + number(key.max, key.unit)
    words = " ".join(part for part in (kind, low, high) if part)
    if key.map_to:
        words += ", or `%s`" % key.map_to
    return words + (", or `%s`" % key.zero_word if key.zero_word else "")


def keys_of(schema, comments, message, path="", within=()):
    """Rows for all keys below a message; a block of keys has a row of its own. `within`: the messages around."""
    for field in message.fields:
        key = field.GetOptions().Extensions[schema.key]
        if key.derived:
            continue
        above = key.written_below + "." if key.written_below else ""
        name = path + above + field.name + ("[]" if field.message_type and field.label == field.LABEL_REPEATED else "")
        meaning = comments.sentence(field.full_name)
        if key.local:
            meaning = "*Local.* " + meaning
        if key.only_in:
            meaning = {1: "*Not with `model.tensors`.* ", 2: "*Only with `model.tensors`.* "}[key.only_in] + meaning
        default = "required" if key.required else "`%s`" % key.default_value if key.default_value else "none"
        if field.message_type is None:
            yield "| `%s` | %s | %s | %s |" % (name, allowed(field, key), default, meaning)
        elif key.map_of_names:
            item = field.message_type.fields[1].message_type
            yield "| `%s` | map by name of lists of `[%s]` | %s | %s |" % (
                path + field.name, ", ".join(each.name for each in item.fields), default, meaning)
        else:
            is_within = field.message_type.full_name in within
            block = "layers" if is_within else "keys" if field.message_type.fields else "no keys"
            yield "| `%s` | %s | %s | %s |" % (name, block, default, meaning)
            if not is_within:
                yield from keys_of(schema, comments, field.message_type, name + ".",
                                   within + (field.message_type.full_name,))


def job_keys(schema, comments, job):
    yield from ("# Job keys", "",
                "All keys of the [job file](../job.md), in the order of its schema, `proto/job.proto` and "
                "`proto/model.proto`.", "",
                "Durations are written `500ms`, `10s`, `1m30s`; sizes `4MiB`, `1GB` or a number of bytes. The file has "
                "at most 1 MiB, a text in it 4096 bytes, and `model.layers` 256 layers. Keys that are *local* may "
                "differ between the machines of one job ([same job](../starting.md#several-machines)). \"keys\" stands "
                "where a key has keys below it; \"no keys\" where its name says all, as `relu`; \"layers\" where it is "
                "a list of layers as `model.layers` is.", "")
    yield from ("## The job itself", "")
    yield from table("key", "value", "default", "meaning")
    for field in job.fields:
        if field.message_type is None:
            key = field.GetOptions().Extensions[schema.key]
            default = "required" if key.required else "`%s`" % key.default_value
            yield "| `%s` | %s | %s | %s |" % (field.name, allowed(field, key), default,
                                              comments.sentence(field.full_name))
    yield ""
    for section in job.fields:
        if section.message_type is None:
            continue
        yield from ("## %s" % section.name, "", comments.sentence(section.full_name), "")
        yield from table("key", "value", "default", "meaning")
        yield from keys_of(schema, comments, section.message_type, section.name + ".")
        yield ""


def type_of(field):
    kinds = {FIELD.TYPE_STRING: "text", FIELD.TYPE_BOOL: "bool", FIELD.TYPE_DOUBLE: "number",
             FIELD.TYPE_FLOAT: "number", FIELD.TYPE_BYTES: "bytes"}
    entry = field.message_type and field.message_type.GetOptions().map_entry
    if entry:
        return "map of text"
    kind = "[%s](#%s)" % (field.message_type.name, field.message_type.name.lower()) if field.message_type else \
        field.enum_type.name if field.enum_type else kinds.get(field.type, "integer")
    return "list of " + kind if field.label == field.LABEL_REPEATED else kind


def status_fields(comments, status):
    yield from ("# Status fields", "",
                "What [`tessera status --json`](../watching.md) prints and `Status.Get` answers: the message "
                "`JobStatus` of `proto/status.proto` and all that it holds. In proto3 JSON 64-bit integers are "
                "strings, and a number that is not finite is `\"NaN\"` or `\"Infinity\"`.", "")
    waiting, seen = [status], {status.full_name}
    while waiting:
        message = waiting.pop(0)
        yield from ("## %s" % message.name, "", comments.sentence(message.full_name), "")
        yield from table("field", "type", "meaning")
        for field in message.fields:
            yield "| `%s` | %s | %s |" % (field.name, type_of(field), comments.sentence(field.full_name))
            below = field.message_type
            if below and not below.GetOptions().map_entry and below.full_name not in seen:
                seen.add(below.full_name)
                waiting.append(below)
        yield ""


def roles(text):
    """[(prefix of a path, role)] of RoleFor, in its order; the last line's role is for all others."""
    body = re.search(r"\nRole RoleFor\(.*?\n}\n", text, re.S).group(0)
    found, end = [], 0
    for part in re.finditer(r"return Role::k(\w+);", body):
        for prefix in re.findall(r'"(/[\w.]+/?)"', body[end:part.start()]):
            found.append((prefix, part.group(1).lower()))
        end = part.end()
        rest = part.group(1).lower()
    return found, rest


def rpcs(comments, files, security):
    listed, rest = roles(security)

    def role(path):
        return next((name for prefix, name in listed if path.startswith(prefix)), rest)

    yield from ("# RPCs", "",
                "All calls of package `tessera.v1`, from `proto/`. Where a job has [tokens](../security.md) a call "
                "wants one of the role in the second column; every token may do what a viewer may. Servers also have "
                "the standard health service and server reflection, for viewers.", "")
    for file in files:
        for service in file.service:
            path = "/%s.%s/" % (file.package, service.name)
            yield from ("## %s" % service.name, "", "In `%s`." % file.name, "")
            yield from table("call", "role", "request", "reply", "what it does")
            for method in service.method:
                request, reply = (("stream of " if stream else "") + "`%s`" % name.rsplit(".", 1)[1]
                                  for stream, name in ((method.client_streaming, method.input_type),
                                                       (method.server_streaming, method.output_type)))
                yield "| `%s` | %s | %s | %s | %s |" % (method.name, role(path), request, reply,
                                                       comments.sentence("%s.%s" % (service.name, method.name)))
            yield ""
    yield from ("## Of gRPC", "")
    yield from table("paths", "role")
    for prefix, name in listed:
        if prefix.startswith("/grpc."):
            yield "| `%s` | %s |" % (prefix, name)


def strings(text):
    """The C++ literals at the beginning of a text, put together."""
    found = re.match(r'\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', text)
    return found and "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', found.group(1)))


def call_at(text, begin):
    """From the parenthesis at `begin` to the one that closes it."""
    depth, inside = 0, False
    for end in range(begin, len(text)):
        if text[end] == '"' and text[end - 1] != "\\":
            inside = not inside
        elif not inside:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            if depth == 0:
                return text[begin:end + 1]
    return text[begin:]


def metrics_of(text):
    """[(name, type, labels, help)] of one source of server/monitor, or of the table of status fields."""
    found = {}
    for row in re.finditer(r'Metric::k(Gauge|Counter),\s*"(tessera_\w+)",', text):
        found[row.group(2)] = (row.group(2), row.group(1).lower(), [], strings(text[row.end():]))
    constants = {name: strings(value) for name, value in
                 re.findall(r'constexpr absl::string_view (k\w+) =\s*((?:"[^"]*"\s*)+);', text)}
    # Lambdas that add the labels of what they are called with.
    lambdas = [(each.start(), each.group(1), re.findall(r'\{"(\w+)",', call_at(text, each.end() - 1)))
               for each in re.finditer(r"const auto (\w+) = \[&\]\([^)]*\) \{\s*set->\w+(\()", text)]
    for call in re.finditer(r'(?:set->)?\b(\w+)(\()\s*"(tessera_\w+)",\s*(\w*)', text):
        function, name, constant = call.group(1), call.group(3), call.group(4)
        whole = call_at(text, call.start(2))
        help_text = constants[constant] if constant else strings(text[call.end():])
        labels = re.findall(r'\{"(\w+)",', whole)
        if function[0].islower():
            labels = [each[2] for each in lambdas if each[1] == function and each[0] < call.start()][-1]
        if function == "OneHot":
            labels = re.findall(r',\s*"(\w+)",\s*k', whole)
        kind = {"onehot": "gauge"}.get(function.lower(), function.lower())
        found.setdefault(name, (name, kind, labels, help_text))
    return list(found.values())


def metrics(texts):
    yield from ("# Metrics", "",
                "All metrics of [the endpoint](../metrics.md), from `server/monitor`. All series also have the label "
                "`job_name`; `exposer_...` is the library's own, of the scrapes.", "")
    yield from table("metric", "type", "meaning")
    for text in texts:
        for name, kind, labels, help_text in metrics_of(text):
            shown = "%s{%s}" % (name, ", ".join(labels)) if labels else name
            meaning = re.sub(r"\b(tessera_\w+|(?:train|cluster|checkpoint)\.\w+)", r"`\1`", help_text)
            yield "| `%s` | %s | %s |" % (shown, kind, meaning)


def pages(root):
    """{path: text} of all reference pages."""
    protos = sorted(os.path.relpath(path, root) for path in glob.glob(os.path.join(root, "proto/*.proto")))
    with tempfile.TemporaryDirectory() as folder:
        binary = os.path.join(folder, "files.bin")
        subprocess.run(["protoc", "-I" + root, "--include_imports", "--include_source_info", "--python_out=" + folder,
                        "--descriptor_set_out=" + binary] + protos, check=True, cwd=root)
        with open(binary, "rb") as file:
            files = descriptor_pb2.FileDescriptorSet.FromString(file.read()).file
        sys.path.insert(0, folder)
        sys.dont_write_bytecode = True
        schema = importlib.import_module("proto.schema_pb2")
        job = importlib.import_module("proto.job_pb2").Job.DESCRIPTOR
        status = importlib.import_module("proto.status_pb2").JobStatus.DESCRIPTOR

    def text_of(path):
        with open(os.path.join(root, path)) as file:
            return file.read()

    ours = [file for file in files if file.name.startswith("proto/")]
    comments = Comments(ours)
    monitor = [text_of("server/monitor/%s_metrics.cc" % name) for name in ("job", "member", "server", "upkeep")]
    if os.path.exists(os.path.join(root, STATUS_FIELDS)):
        monitor.insert(0, text_of(STATUS_FIELDS))
    made = {
        "job_keys.md": job_keys(schema, comments, job),
        "status.md": status_fields(comments, status),
        "rpcs.md": rpcs(comments, ours, text_of("common/rpc/security.cc")),
        "metrics.md": metrics(monitor),
    }
    note = "<!-- Written by deploy/reference.py: change what it reads, and run it again. -->"
    return {os.path.join(PAGES, name): "\n".join([note, *lines]).rstrip("\n") + "\n" for name, lines in made.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="name the pages that are not current")
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                        help="the tree (default: the one that this script lies in)")
    options = parser.parse_args()
    stale = []
    for path, text in pages(options.root).items():
        place = os.path.join(options.root, path)
        old = open(place).read() if os.path.exists(place) else None
        if old == text:
            continue
        stale.append(path)
        if not options.check:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "w") as file:
                file.write(text)
    if options.check and stale:
        sys.exit("reference.py: not current, run deploy/reference.py: " + ", ".join(stale))


if __name__ == "__main__":
    main()
