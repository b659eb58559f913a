"""A file that is one dump -> the lines that a job's log keeps of it.

Known are PyTorch's flight recorder (pickle and JSON), ``py-spy dump --json``, torchelastic's error file and ``ncclras -f
json``. The beginning of a file decides. If it then cannot be read as such a document, it is an ordinary file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, Literal

from diagnose.reading.dumps import flight_recorder, plain_pickle, ras
from diagnose.reading.prefixes import origin_of_path

Kind = Literal["recorder-pickle", "recorder", "py-spy", "error-file", "ras"]

LARGEST: Final = 64 << 20
"""bytes of a document that are read"""
MOST_LINES: Final = 20_000
_LONGEST = 2_000
_LAST_NUMBER = re.compile(r"(\d{1,6})(?:\.(?:json|pkl|pickle|txt))?$")


class NoDump(ValueError):
    """It is not such a document after all."""


def recognised(head: bytes) -> Kind | None:
    """Which document begins like this, if any."""
    if re.match(rb"\x80[\x02-\x05]", head):
        return "recorder-pickle" if b"pg_config" in head or (b"entries" in head and b"version" in head) else None
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start == b"{":
        if b'"pg_config"' in head or (b'"entries"' in head and b'"collective_seq_id"' in head):
            return "recorder"
        if b'"py_callstack"' in head or (b'"extraInfo"' in head and b'"message"' in head):
            return "error-file"
        if b'"communicators"' in head and b'"nccl_version"' in head:
            return "ras"
    elif start == b"[" and b'"frames"' in head and b'"thread_id"' in head:
        return "py-spy"
    return None


def lines(kind: Kind, data: bytes, name: str) -> list[str]:
    """What the log keeps of the document."""
    if len(data) > LARGEST:
        raise NoDump(f"the dump is larger than {LARGEST >> 20} MiB")
    if kind == "recorder-pickle":
        try:
            value = plain_pickle.loads(data)
        except plain_pickle.NotPlain as error:
            raise NoDump(str(error)) from None
    else:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise NoDump(f"the JSON cannot be read: {error}") from None
    found: list[str] = []
    try:
        for line in _TOLD[kind](value, name):
            found.append(line[:_LONGEST])
            if len(found) >= MOST_LINES:
                break
    except (flight_recorder.NoRecord, ras.NoReport) as error:
        raise NoDump(str(error)) from None
    if not found:
        raise NoDump("it holds nothing of a dump")
    return found


def _recorder(value: Any, name: str) -> Iterator[str]:
    rank = origin_of_path(name).rank
    if rank is None and (found := _LAST_NUMBER.search(name)) is not None:
        rank = int(found[1])  # the recorder appends the rank to the name that it was given
    yield from flight_recorder.lines(flight_recorder.of_data(value, rank))


def _spied(value: Any, name: str) -> Iterator[str]:
    if not isinstance(value, list):
        raise NoDump("it is no list of threads")
    process = None
    for thread in value:
        if not isinstance(thread, dict):
            continue
        pid = thread.get("pid")
        if isinstance(pid, int) and pid != process:
            process = pid
            info = thread.get("process_info")
            command = info.get("command_line") if isinstance(info, dict) else None
            yield f"Process {pid}: {_flat(command or 'read by py-spy dump --json')}"
            yield "Python v?"
        ident = thread.get("os_thread_id") or thread.get("thread_id") or 0
        state = "active" if thread.get("active") else "idle"
        state += "+gil" if thread.get("owns_gil") else ""
        named = f': "{_flat(thread["thread_name"])}"' if isinstance(thread.get("thread_name"), str) else ""
        yield f"Thread {ident if isinstance(ident, int) else 0} ({state}){named}"
        frames = thread.get("frames")
        for frame in frames if isinstance(frames, list) else ():
            if isinstance(frame, dict):
                yield f"    {_flat(frame.get('name'))} ({_place(frame)})"


def _place(frame: dict[str, Any]) -> str:
    file = _flat(frame.get("filename") or frame.get("module")).replace("(", "[").replace(")", "]")
    line = frame.get("line")
    return f"{file}:{line}" if isinstance(line, int) and line > 0 else file


def _error_file(value: Any, name: str) -> Iterator[str]:
    """The traceback as the process would have printed it: often the error file is all that is left of it."""
    inside = value.get("message") if isinstance(value, dict) else None
    about = inside if isinstance(inside, dict) else value if isinstance(value, dict) else {}
    extra = about.get("extraInfo")
    extra = extra if isinstance(extra, dict) else {}
    message = about.get("message")
    stack = extra.get("py_callstack")
    if not isinstance(message, str) and not isinstance(stack, str):
        raise NoDump("it has neither a message nor a call stack")
    rank = origin_of_path(name).rank
    of = f" of rank={rank}" if rank is not None else ""
    yield f"{_moment(extra.get('timestamp', about.get('timestamp')))}torchelastic error file{of}"
    told = stack.splitlines() if isinstance(stack, str) else []
    yield from (_clean(line) for line in told)
    said = message.splitlines() if isinstance(message, str) else []
    if said and not any(said[0] in line for line in told):
        yield from (_clean(line) for line in said)


def _moment(timestamp: Any) -> str:
    try:
        return f"{datetime.fromtimestamp(int(timestamp), UTC):%Y-%m-%d %H:%M:%S} "
    except (TypeError, ValueError, OverflowError, OSError):
        return ""


def _ras(value: Any, name: str) -> Iterator[str]:
    return ras.lines(value)


def _flat(value: Any) -> str:
    return _clean(str(value) if isinstance(value, (str, int)) else "?")[:300]


def _clean(line: str) -> str:
    return re.sub(r"[\x00-\x08\x0a-\x1f\x7f]", "?", line[:_LONGEST]).encode("utf-8", "replace").decode()


_TOLD: Final[dict[Kind, Callable[[Any, str], Iterator[str]]]] = {
    "recorder-pickle": _recorder,
    "recorder": _recorder,
    "py-spy": _spied,
    "error-file": _error_file,
    "ras": _ras,
}
