#!/usr/bin/env python3
"""Kubernetes' types, and whether manifests are of them: every field known, none missing that must be there, each of its
type. It is what a server looks at first; values that only a cluster knows, such as a storage class, stay unseen.

    kubernetes_types.py PACKAGE    writes kubernetes_types.json, from the unpacked npm package @kubernetes/client-node

The package's classes are generated from Kubernetes' OpenAPI document (Apache-2.0), and say of which version it was. A
type is {field: type}, with "!" behind the name of a field that must be there. Types of fields are string, number,
boolean, any, IntOrString, a type's name, [TYPE] for lists and {TYPE} for maps.
"""
import json
import os
import re
import sys

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kubernetes_types.json")
# What manifests are made of. What these need comes along.
ROOTS = ["V1ConfigMap", "V1Job", "V1JobTemplateSpec", "V1NetworkPolicy", "V1PersistentVolumeClaim",
         "V1PodDisruptionBudget", "V1Secret", "V1Service"]


def type_of(text):
    """A type of TypeScript as one of the file."""
    text = text.strip()
    found = re.fullmatch(r"Array<(.*)>", text)
    if found:
        return "[%s]" % type_of(found.group(1))
    found = re.fullmatch(r"\{ \[key: string\]: (.*); \}", text)
    if found:
        return "{%s}" % type_of(found.group(1))
    return {"Date": "string", "V1MicroTime": "string"}.get(text, text)


def read_type(models, name):
    """{field: type} of one class, from its table of attributes and its declaration, which says what is optional."""
    with open(os.path.join(models, name + ".js"), encoding="utf-8") as file:
        table = json.loads(re.search(r"\.attributeTypeMap = (\[.*?\n\]);", file.read(), re.S).group(1))
    with open(os.path.join(models, name + ".d.ts"), encoding="utf-8") as file:
        optional = dict(re.findall(r"^    '(\w+)'(\?)?:", file.read(), re.M))
    return {each["baseName"] + ("" if optional[each["name"]] else "!"): type_of(each["type"]) for each in table}


def names_in(kind):
    return re.findall(r"\b(?:V\d\w*|CoreV1\w*|DiscoveryV1\w*|StorageV1\w*)", kind)


def write(package):
    models = os.path.join(package, "dist/gen/models")
    with open(os.path.join(models, "V1Job.js"), encoding="utf-8") as file:
        version = re.search(r"OpenAPI spec version: release-(\S+)", file.read()).group(1)
    types, wanted = {}, list(ROOTS)
    while wanted:
        name = wanted.pop()
        if name not in types:
            types[name] = read_type(models, name)
            wanted += [each for kind in types[name].values() for each in names_in(kind)]
    lines = ",\n".join(" %s: %s" % (json.dumps(name), json.dumps(fields, sort_keys=True))
                       for name, fields in sorted(types.items()))
    with open(FILE, "w", encoding="utf-8") as file:
        file.write('{"version": "%s", "types": {\n%s\n}}\n' % (version, lines))


class Types:
    def __init__(self):
        with open(FILE, encoding="utf-8") as file:
            found = json.load(file)
        self.version, self.types = found["version"], found["types"]

    def faults(self, value, kind, where=""):
        """What is wrong with a value that is to be of a type, a line each, with the place."""
        if kind == "any":
            return []
        if kind[0] == "[":
            if not isinstance(value, list):
                return ["%s: is %r, want a list" % (where, value)]
            return [fault for index, each in enumerate(value)
                    for fault in self.faults(each, kind[1:-1], "%s[%d]" % (where, index))]
        if kind[0] == "{":
            if not isinstance(value, dict):
                return ["%s: is %r, want a map" % (where, value)]
            return [fault for key, each in value.items()
                    for fault in self.faults(each, kind[1:-1], "%s.%s" % (where, key))]
        if kind in ("string", "number", "boolean", "IntOrString"):
            fits = {"string": isinstance(value, str), "boolean": isinstance(value, bool),
                    "number": isinstance(value, (int, float)) and not isinstance(value, bool),
                    "IntOrString": isinstance(value, (int, str)) and not isinstance(value, bool)}[kind]
            return [] if fits else ["%s: is %r, want %s" % (where, value, kind)]
        return self.object_faults(value, kind, where)

    def object_faults(self, value, kind, where):
        if not isinstance(value, dict):
            return ["%s: is %r, want a %s" % (where, value, kind)]
        fields = {name.rstrip("!"): (each, name.endswith("!")) for name, each in self.types[kind].items()}
        faults = ["%s: has no %s" % (where, name) for name, (_, is_wanted) in fields.items()
                  if is_wanted and name not in value]
        for name, each in value.items():
            if name in fields:
                faults += self.faults(each, fields[name][0], "%s.%s" % (where, name))
            else:
                faults.append("%s: has %s, which no %s has" % (where, name, kind))
        return faults

    def document_faults(self, document):
        """Of a whole document, by its kind."""
        kind = "V1" + document["kind"]
        if kind not in ROOTS:
            return ["%s: its type is not in %s" % (document["kind"], FILE)]
        return self.faults(document, kind, "%s %s" % (document["kind"], document["metadata"]["name"]))


if __name__ == "__main__":
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        sys.exit("usage: kubernetes_types.py PACKAGE: what npm pack @kubernetes/client-node has packed, unpacked")
    write(sys.argv[1])
