"""What the programs' --help says, as tables: what man pages and completions are made of.

A program prints a line that says what it does, a usage, and sections of entries, each of two columns:

    Positionals:
      JOB TEXT REQUIRED           the job file
    Options:
      -h,--help                   Print this help message and exit
      --nodes INT:INT in [1 - 1024] Needs: --slurm
                                  with --slurm: so many; without it one a worker
    Subcommands:
      run                         train a job with servers and workers on this machine

An entry whose first column is too long for its place has the second one on the next line.
"""
import re
import subprocess

# What stands behind an option's name: the kind of its value, and which options go with it.
NOTE = re.compile(r"\b(Excludes|Needs|Env):")


class Option:
    """--set KEY=VALUE: `names` are ["--set"], `value` is KEY=VALUE, or "" where it is a flag."""

    def __init__(self, entry, about):
        names, _, rest = entry.partition(" ")
        self.names = names.split(",")
        # REQUIRED and "..." are no part of what the value is called.
        words = NOTE.split(rest)[0].replace("REQUIRED", "").replace("...", "").split(":")[0].split()
        self.value = words[0] if words else ""
        self.is_required = "REQUIRED" in rest.split()
        self.about = about


class Positional:
    def __init__(self, entry, about):
        self.name = entry.split()[0]
        self.is_required = "REQUIRED" in entry.split()
        self.is_list = "..." in entry.split()
        self.about = about


class Help:
    """One program's or subcommand's help. `commands` is {name: what it does} of a program that has them."""

    def __init__(self, text):
        self.about, self.usage = "", ""
        self.options, self.positionals, self.commands = [], [], {}
        section = ""
        for name, entry, about in entries_of(text):
            if name == "":
                self.about = self.about or about
            elif name == "Usage":
                self.usage = about
            else:
                section = name
                if section == "Positionals":
                    self.positionals.append(Positional(entry, about))
                elif section == "Subcommands":
                    self.commands[entry] = about
                else:
                    self.options.append(Option(entry, about))


def entries_of(text):
    """(section, first column, second column) of each entry. What is before all sections has neither of the first."""
    section, found = "", []
    for line in text.splitlines():
        if not line.strip():
            continue
        usage = re.match(r"Usage: (.*)", line)
        heading = re.match(r"(\w[\w ]*):$", line)
        entry = re.match(r"  (\S.*?)(?:\s{2,}(\S.*))?$", line)
        if usage:
            found.append(["Usage", "", usage.group(1)])
        elif heading:
            section = heading.group(1)
        elif section and entry and not line.startswith("      "):
            found.append([section, entry.group(1), entry.group(2) or ""])
        elif section and found:
            found[-1][2] = (found[-1][2] + " " + line.strip()).strip()
        else:
            found.append(["", "", line.strip()])
    return found


def help_of(program, *command):
    """The Help of a program, or of a command of it. subprocess.CalledProcessError: it did not say."""
    done = subprocess.run([program, *command, "--help"], check=True, capture_output=True, text=True)
    return Help(done.stdout)
