"""What the processes of a job have written down, read as it grows, and timed by their own clock."""
import datetime
import re

LINE = re.compile(r"[DIWE](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) (.*)")


def stamp(found):
    """The time of a log line, in seconds since 1970."""
    month, day, hour, minute, second, micros = (int(found.group(i)) for i in range(1, 7))
    year = datetime.date.today().year
    return datetime.datetime(year, month, day, hour, minute, second, micros).timestamp()


def now():
    """As stamp tells it."""
    return datetime.datetime.now().timestamp()


class Log:
    """One process's log."""

    def __init__(self, process):
        self.process = process
        self.lines = []  # (when, text)
        self.offset = 0

    def read(self):
        """All whole lines that there are by now."""
        with open(self.process.log, "rb") as file:
            file.seek(self.offset)
            text = file.read()
        text = text[:text.rfind(b"\n") + 1]
        self.offset += len(text)
        for line in text.decode(errors="replace").splitlines():
            found = LINE.match(line)
            if found:
                self.lines.append((stamp(found), found.group(7)))
        return self.lines

    def since(self, when):
        """The lines from `when` on, the newest first."""
        for line in reversed(self.read()):
            if line[0] < when:
                return
            yield line


class Evidence:
    """The logs of all processes that a job ever had."""

    def __init__(self):
        self.logs = []

    def add(self, process):
        self.logs.append(Log(process))

    def of(self, kind):
        return [log for log in self.logs if log.process.name.startswith(kind)]

    def servers_said(self, pattern, since=0.0):
        """(when, match) of all lines of servers that begin so, the oldest first."""
        found = [(when, re.match(pattern, text)) for log in self.of("server") for when, text in log.since(since)]
        return sorted(((when, match) for when, match in found if match), key=lambda line: line[0])

    def acknowledged_since(self, worker, since):
        """When the worker's first exchange from `since` on was acknowledged by all servers, or None."""
        log = next(log for log in self.logs if log.process is worker)
        times = [when for when, text in log.since(since) if text.startswith("worker: acknowledged")]
        return times[-1] if times else None

    def exchanges(self):
        """{member: the exchanges that all servers have acknowledged and that no return to a checkpoint made void}"""
        back = [(when, int(match.group(1)))
                for when, match in self.servers_said(r"control: going back step=\d+ exchange=(\d+)")]
        members = {}
        for log in self.of("worker"):
            member = None
            for when, text in log.read():
                joined = re.match(r"worker: joined rank=\d+ member=(\d+)", text)
                if joined:
                    member = int(joined.group(1))
                    members.setdefault(member, [])
                done = re.match(r"worker: acknowledged exchange=(\d+)", text)
                if done and not any(when < then and int(done.group(1)) > last for then, last in back):
                    members[member].append(int(done.group(1)))
        return members
