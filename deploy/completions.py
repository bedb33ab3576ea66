#!/usr/bin/env python3
"""Writes completions of the three programs for bash and zsh, from what their --help says.

usage: deploy/completions.py [--programs DIR; default bazel-bin] FOLDER

FOLDER gets tessera.bash and _tessera. What --set takes is completed from the page of all job keys, and what `help`
takes from the list that it prints. An option whose value is of no known kind is an error: say here what completes it.
"""
import argparse
import os
import re
import shlex
import subprocess
import sys

from command_help import help_of

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEYS = "docs/operating/reference/job_keys.md"
# Where the programs lie in a build tree; elsewhere they lie side by side.
PLACES = {"tessera": "deploy/cli", "tessera-server": "server", "tessera-worker": "worker"}
# How values are completed, by the option's or the positional's name. `words` are told below.
FILES = {"--job", "--report", "--logs", "--tensorboard", "--out", "--table", "--identity", "--hosts-file",
         "--directory", "--bundle", "--authority", "--certificate", "--private-key", "--token-file", "--address-file",
         "--layers", "JOB", "CKPT", "OUT", "MODEL", "DATA", "REPORT", "SOURCE"}
WORDS = {"--device": ["cpu", "cuda"], "--log-level": ["debug", "info", "warning", "error"],
         "--x": ["seconds", "examples", "bytes", "steps"], "--y": ["accuracy", "loss", "perplexity"],
         "--restart-after": ["never"], "--set": None, "TOPIC": None}
# Numbers, sizes, durations, addresses and texts.
NOTHING = {"--workers", "--servers", "--bandwidth", "--latency", "--step-time", "--speed-spread", "--slow-worker",
           "--step-jitter", "--fail-rate", "--machines", "--server-machines", "--cores-per-machine",
           "--loopback-bandwidth", "--message-cost", "--server-rate", "--nodes", "--local-steps", "--prompt",
           "--tokens", "--temperature", "--seed", "--threads", "--label", "--map", "--reason", "--worker", "--hosts",
           "--ssh-option", "--port", "--grace", "--sbatch", "--metrics", "--metrics-linger", "--page", "--rank",
           "--listen", "--origin", "--coordinator", "--incarnation", "--utilisation", "ADDRESS"}


def programs_in(folder):
    """{program: path}"""
    found = {}
    for name, place in PLACES.items():
        beside, built = os.path.join(folder, name), os.path.join(folder, place, name)
        found[name] = beside if os.path.isfile(beside) else built
    return found


def job_keys(root=ROOT):
    """The keys that a value can be given for: train.batch_size=."""
    with open(os.path.join(root, KEYS), encoding="utf-8") as file:
        rows = re.findall(r"^\| `([a-z][\w.]*)` \| ([^|]*) \|", file.read(), re.M)
    return sorted({key + "=" for key, kind in rows if kind not in ("keys", "layers", "no keys")})


def topics(program):
    text = subprocess.run([program, "help"], check=True, capture_output=True, text=True).stdout
    pages, _, commands = text.partition("Commands name the page")
    return sorted(set(re.findall(r"^  (\S+)  ", pages, re.M)) | set(commands.partition(":")[2].split()))


class Table:
    """The commands of all programs: {program or "tessera COMMAND": Help}, and how each value is completed."""

    def __init__(self, programs):
        self.programs = list(programs)
        self.helps = {name: help_of(path) for name, path in programs.items()}
        tessera = programs["tessera"]
        for command in self.helps["tessera"].commands:
            self.helps["tessera " + command] = help_of(tessera, command)
        self.words = dict(WORDS)
        self.words["--set"] = job_keys()
        self.words["TOPIC"] = topics(tessera)

    def kind(self, name, value):
        """files, words, nothing, or "" for a flag."""
        if not value:
            return ""
        for kind, names in (("files", FILES), ("words", self.words), ("nothing", NOTHING)):
            if name in names:
                return kind
        sys.exit("completions.py: %s takes a value, and nothing says how it is completed; add it to FILES, WORDS or "
                 "NOTHING" % name)


def bash(table):
    """One function for all programs. It looks at the words so far, and uses no other package's functions."""
    words, files, nothing = {}, set(), set()
    for help_ in table.helps.values():
        for option in help_.options:
            for name in option.names:
                kind = table.kind(name, option.value)
                if kind == "files":
                    files.add(name)
                elif kind == "nothing":
                    nothing.add(name)
                elif kind == "words":
                    words[name] = table.words[name]
    out = ["# Completion of tessera, tessera-server and tessera-worker for bash. Written by deploy/completions.py.",
           "_tessera() {",
           "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}",
           "  local command=${COMP_WORDS[0]##*/}",
           "  COMPREPLY=()",
           "  # KEY=VALUE is three words where \"=\" breaks words; values of keys are the reader's own.",
           "  [[ $current == = || $previous == = ]] && return",
           "  case $previous in"]
    for name, values in sorted(words.items()):
        if not name.startswith("-"):
            continue
        out.append("    %s)" % name)
        if name == "--set":
            out.append("      compopt -o nospace")
        out += ["      COMPREPLY=($(compgen -W %s -- \"$current\"))" % shlex.quote(" ".join(values)),
                "      return", "      ;;"]
    out += ["    %s)" % " | ".join(sorted(files)),
            "      compopt -o filenames", "      mapfile -t COMPREPLY < <(compgen -f -- \"$current\")",
            "      return", "      ;;",
            "    %s) return ;;" % " | ".join(sorted(nothing)), "  esac",
            "  [[ $command == tessera && COMP_CWORD -gt 1 ]] && command=\"tessera ${COMP_WORDS[1]}\"",
            "  case $command in"]
    for name, help_ in sorted(table.helps.items()):
        options = " ".join(sorted(each for option in help_.options for each in option.names))
        out.append("    %s)" % shlex.quote(name))
        out.append("      if [[ $current == -* ]]; then")
        out.append("        COMPREPLY=($(compgen -W %s -- \"$current\"))" % shlex.quote(options))
        if help_.commands:
            out += ["      else", "        COMPREPLY=($(compgen -W %s -- \"$current\"))" %
                    shlex.quote(" ".join(sorted(help_.commands)))]
        elif help_.positionals:
            first = help_.positionals[0].name
            kind = table.kind(first, "TEXT")
            if kind == "words":
                out += ["      else", "        COMPREPLY=($(compgen -W %s -- \"$current\"))" %
                        shlex.quote(" ".join(table.words[first]))]
            elif kind == "files":
                out += ["      else", "        compopt -o filenames",
                        "        mapfile -t COMPREPLY < <(compgen -f -- \"$current\")"]
        out += ["      fi", "      ;;"]
    out += ["  esac", "}", "complete -F _tessera %s" % " ".join(table.programs)]
    return "\n".join(out) + "\n"


def zsh_text(text):
    """A description within a specification of _arguments."""
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def zsh_action(table, name, value):
    kind = table.kind(name, value)
    if kind == "files":
        return ":%s:_files" % value.lower()
    if kind == "words":
        suffix = " -S ''" if name == "--set" else ""
        return ":%s:compadd%s - %s" % (value.lower(), suffix, " ".join(table.words[name]))
    return ":%s: " % value.lower() if kind == "nothing" else ""


def zsh(table):
    """One function for each program and command, whose options and positionals _arguments completes."""
    out = ["#compdef %s" % " ".join(table.programs),
           "# Completion of tessera, tessera-server and tessera-worker for zsh. Written by deploy/completions.py."]
    for name, help_ in sorted(table.helps.items()):
        specs = []
        for option in help_.options:
            for each in option.names:
                specs.append("%s[%s]%s" % ("*" + each if each == "--set" else each, zsh_text(option.about),
                                           zsh_action(table, each, option.value)))
        if help_.commands:
            specs += ["1:command:_tessera_commands", "*::argument:_tessera_arguments"]
        for positional in help_.positionals:
            action = zsh_action(table, positional.name, "TEXT").partition(":text:")[2] or " "
            specs.append("%s:%s:%s" % ("*" if positional.is_list else "", zsh_text(positional.name.lower()), action))
        out.append("_%s() {" % ("tessera_main" if help_.commands else name.replace(" ", "_").replace("-", "_")))
        # Programs with commands complete in two steps, the second of which sees the command as its first word.
        out.append("  _arguments -s -S %s%s" % ("-C " if help_.commands else "",
                                                 " ".join(shlex.quote(each) for each in specs)))
        out.append("}")
    commands = table.helps["tessera"].commands
    out += ["_tessera_commands() {",
            "  local -a commands=(%s)" % " ".join(shlex.quote("%s:%s" % (name, about.replace(":", "\\:")))
                                                   for name, about in sorted(commands.items())),
            "  _describe command commands", "}",
            "_tessera_arguments() {", "  local command=_tessera_$words[1]",
            "  (( $+functions[$command] )) && $command", "}",
            # The file is the function _tessera at its first call, which is for any of the programs, and this one later.
            "_tessera() {", "  case $service in", "    tessera) _tessera_main ;;"]
    for name in table.programs:
        if name != "tessera":
            out.append("    %s) _%s ;;" % (name, name.replace("-", "_")))
    return "\n".join(out + ["  esac", "}", "_tessera"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--programs", metavar="DIR", default=os.path.join(ROOT, "bazel-bin"))
    parser.add_argument("folder", metavar="FOLDER")
    arguments = parser.parse_args()
    programs = programs_in(arguments.programs)
    for name, path in programs.items():
        if not os.access(path, os.X_OK):
            print("completions.py: %s: not there, want the program %s; build it with deploy/build.sh, or name its "
                  "folder with --programs" % (path, name), file=sys.stderr)
            return 2
    table = Table(programs)
    os.makedirs(arguments.folder, exist_ok=True)
    for name, text in (("tessera.bash", bash(table)), ("_tessera", zsh(table))):
        with open(os.path.join(arguments.folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
