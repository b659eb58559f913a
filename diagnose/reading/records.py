"""Lines that are records of a shipper or a logger -> the printed text.

Known are JSON, logfmt, RFC 5424, the journal's export, and dmesg -T. Each record is recognised alone. Its message stays. Of the
other fields the time, the rank, the node and a level from ERROR up are written in the form that ``prefixes`` reads. A message
of several lines becomes segments of one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from diagnose.reading.prefixes import body_start

MESSAGES = (
    "log", "message", "msg", "MESSAGE", "line", "text", "body", "event", "content", "textPayload", "@message", "short_message",
    "log_message", "log_line", "Body", "Message", "Msg",
)  # fmt: skip
"""keys that shippers and loggers use for the printed text, the surest first"""
_INSIDE = ("jsonPayload", "fields", "record", "data", "attributes", "log")
_TIMES = ("time", "timestamp", "ts", "@timestamp", "asctime", "datetime", "Timestamp", "t", "_SOURCE_REALTIME_TIMESTAMP",
          "__REALTIME_TIMESTAMP")  # fmt: skip
_LEVELS = ("level", "severity", "levelname", "lvl", "log_level", "loglevel", "severity_text", "PRIORITY")
_COMPANIONS = frozenset((
    *_TIMES, *_LEVELS, "stream", "logger", "name", "container", "pod", "hostname", "host", "rank", "_HOSTNAME", "kubernetes",
    "logStream", "tag", "source", "filename", "lineno", "caller", "module",
))  # fmt: skip
"""a record of a logger or a shipper has one of these beside the message"""
_RANKS = ("rank", "global_rank", "RANK")
_NODES = ("node", "hostname", "host", "node_name", "_HOSTNAME", "nodename")
_TRACES = ("exc_info", "exc_text", "exception", "stack_trace", "stacktrace", "traceback", "stack", "error")
_ERRORS = ("error", "err", "cause", "exception")
_NO_ERROR = frozenset(("", "null", "nil", "<nil>", "none", "None", "false", "False", "0"))
_TROUBLE = re.compile(r"(?i)(?:warn|warning|err|error|fatal|critical|crit|panic|alert|emerg|emergency)\Z")
_SEVERE = re.compile(r"(?i)(?:err|error|fatal|critical|crit|panic|alert|emerg|emergency)\Z")
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\Z")
_BREAKS = re.compile(r"[\r\n]+")
_LEVEL_ALREADY = re.compile(
    r"\s|(?i:traceback|[\[(]?(?:debug|info|notice|warn|error|fatal|crit))|[\w.]*(?:Error|Exception|Exit|Interrupt)\b"
    r"|[\w.\[\]() -]{0,60}\b(?:ERROR|FATAL|CRITICAL)\b"
)
"""needs no level before it: it states its own, or continues an earlier line"""


def printed(line: bytes) -> bytes | None:
    """The printed text, if ``line`` is a record; else None."""
    start = line[:1]
    if start == b"{":
        return _json(line)
    if start == b"<":
        return _syslog(line)
    if start == b"[":
        return _dmesg(line)
    if b"=" in line[:40]:
        return _logfmt(line)
    return None


def fields_of(line: bytes) -> dict[str, Any] | None:
    """The fields of a line of JSON; None if it is none."""
    line = line.rstrip()
    if not line.startswith(b'{"') or not line.endswith(b"}"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _json(line: bytes) -> bytes | None:
    fields = fields_of(line)
    if fields is None or _COMPANIONS.isdisjoint(fields):
        return None
    message = _message_of(fields)
    return None if message is None else composed(message, fields)


def _message_of(fields: dict[str, Any]) -> str | None:
    for key in MESSAGES:
        if isinstance(found := fields.get(key), str):
            return found
    for outer in _INSIDE:
        if isinstance(inner := fields.get(outer), dict):
            for key in MESSAGES:
                if isinstance(found := inner.get(key), str):
                    return found
    return None


def strings(fields: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(key, value) of the fields that are text, also one level down."""
    for key, value in fields.items():
        if isinstance(value, str):
            yield key, value
        elif isinstance(value, dict):
            for inner, text in value.items():
                if isinstance(text, str):
                    yield f"{key}\0{inner}", text


def composed(message: str, fields: dict[str, Any]) -> bytes:
    """A message with its other fields, as a line of the kind that programs print."""
    message = message.rstrip("\r\n")
    parts = []
    if (time := _time(fields)) is not None:
        parts.append(time + " ")
    rank = next((fields[key] for key in _RANKS if key in fields), None)
    if isinstance(rank, int | str) and str(rank).isdecimal() and len(str(rank)) < 7:
        parts.append(f"[rank{rank}]: ")
    node = next((fields[key] for key in _NODES if isinstance(fields.get(key), str)), None)
    if node is not None and body_start(f"{node}: ".encode()) == len(f"{node}: ".encode()):
        parts.append(f"{node}: ")
    level = next((fields[key] for key in _LEVELS if isinstance(fields.get(key), str)), "")
    if _SEVERE.match(level) and message and not _LEVEL_ALREADY.match(message):
        parts.append("ERROR ")
    parts.append(message)
    if _TROUBLE.match(level):
        parts += _said_beside(message, fields)
    for key in _TRACES:
        trace = fields.get(key)
        if isinstance(trace, dict):
            trace = trace.get("stack_trace") or trace.get("stacktrace")
        if isinstance(trace, str) and "\n" in trace and trace not in message:
            parts.append("\n" + trace)
    return _BREAKS.sub("\r", "".join(parts).rstrip("\r\n")).encode("utf-8", "replace")


def _said_beside(message: str, fields: dict[str, Any]) -> Iterator[str]:
    """What failed, where a logger puts it into a field beside the message (``msg="cannot load" error="out of memory"``)."""
    for key in _ERRORS:
        error = fields.get(key)
        if isinstance(error, str) and error not in _NO_ERROR and "\n" not in error and error not in message:
            yield f": {error}"
            return


def _time(fields: dict[str, Any]) -> str | None:
    for key in _TIMES:
        value = fields.get(key)
        if isinstance(value, str):
            if _STAMP.match(value):
                return value
            if not value.isdecimal() or not 10 <= len(value) <= 19:
                continue
            value = int(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and 1e9 < value < 1e19:
            while value > 1e11:  # milliseconds, microseconds, nanoseconds
                value /= 1000
            return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return None


_RFC5424 = re.compile(
    rb"<\d{1,3}>1 (?P<time>\d{4}-\S+|-) (?P<host>\S+) (?P<app>\S+) (?P<process>\S+) \S+ "
    rb'(?:-|(?:\[[^\s\]]+(?: [^\s=\]"]+="(?:[^"\\\]]|\\.)*")*\])+)(?: (?:\xef\xbb\xbf)?(?P<message>.*))?\Z',
    re.DOTALL,
)


def _syslog(line: bytes) -> bytes | None:
    found = _RFC5424.match(line)
    if found is None:
        return None
    host = found["host"] + b": "
    time = found["time"] + b" " if found["time"] != b"-" else b""
    return time + (host if body_start(host) == len(host) else b"") + (found["message"] or b"")


_MONTHS = {name: b"%02d" % number for number, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
_DMESG = re.compile(
    rb"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d) "
    rb"(?P<year>\d{4})\] ?"
)


def _dmesg(line: bytes) -> bytes | None:
    found = _DMESG.match(line)
    if found is None or found["month"] not in _MONTHS:
        return None
    day = found["day"].zfill(2)
    return b"%b-%b-%b %b " % (found["year"], _MONTHS[found["month"]], day, found["clock"]) + line[found.end() :]


_PAIR = re.compile(rb'(?P<key>[A-Za-z_@][\w.@/-]*)=(?P<value>"(?:[^"\\]|\\.)*"|[^\s"]*)(?:\s+|\Z)')
_SOLE = re.compile(rb"(?:MESSAGE|_{0,2}[A-Z][A-Z0-9_]{2,60})=")


def _logfmt(line: bytes) -> bytes | None:
    """``time=… level=info msg="…"``, as loggers in Go write it. The line must have nothing but pairs."""
    fields: dict[str, Any] = {}
    at = 0
    stripped = line.rstrip()
    while at < len(stripped):
        found = _PAIR.match(stripped, at)
        if found is None:
            return None
        value = found["value"].decode("utf-8", "replace")
        if value.startswith('"'):
            try:
                value = json.loads(value, strict=False)
            except ValueError:
                value = value[1:-1]
        fields[found["key"].decode()] = value
        at = found.end()
    message = next((fields[key] for key in ("msg", "message") if key in fields), None)
    if message is None or _COMPANIONS.isdisjoint(fields):
        return None
    return composed(message, fields)


def exported(line: bytes) -> bytes | None:
    """A line of ``journalctl -o export``: the message, or nothing for the other fields of the entry."""
    if line.startswith(b"MESSAGE="):
        return line[len(b"MESSAGE=") :]
    return b"" if _SOLE.match(line) else None
