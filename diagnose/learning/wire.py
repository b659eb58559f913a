"""The wire format between a process that has lines and the process that learns from them (``worker``).

Frames go to the worker. Each is a JSON head and, for a scan, the records of its kept lines and their text. The first says what
the worker is for. Every other has a kind:

=====  ====================================================================================================================
scan   kept lines of a job of a workload
task   one thing to do: a lesson about logs that have ended, or, for a service, something about an attempt
tick   nothing new: time goes on
end    there are no more lines: finish what was begun
=====  ====================================================================================================================

JSON lines come back, each with one or more of these:

========  =================================================================================================================
changed   (rule, state) of the rules whose state changed; empty if counts were stored and nothing changed
lesson    how many rules a lesson proposed, and how many of them were refused
problems  sentences
begun     the number of a task; also ``done`` with its result, and ``again`` if it could not be done now
usage     what the model has cost since the last time, and the state of its circuit breaker
========  =================================================================================================================
"""

from __future__ import annotations

import json
import struct
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

_FRAME = struct.Struct("<III")
"""length of the JSON head, of the records of kept lines, and of their text"""
_emitting = threading.Lock()


def send(out: IO[bytes], head: dict[str, Any], records: bytes = b"", text: bytes = b"") -> None:
    """One frame."""
    data = json.dumps(head, default=str).encode()
    out.write(_FRAME.pack(len(data), len(records), len(text)))
    out.write(data)
    out.write(records)
    out.write(text)
    out.flush()


def frames(source: IO[bytes]) -> Iterator[tuple[dict[str, Any], bytes, bytes]]:
    """(head, records, text) of each frame."""
    while len(lengths := source.read(_FRAME.size)) == _FRAME.size:
        size, records, text = _FRAME.unpack(lengths)
        yield json.loads(source.read(size)), source.read(records), source.read(text)


def emit(**what: Any) -> None:
    """Send a line back. Any thread may call this."""
    line = json.dumps(what) + "\n"
    with _emitting:
        sys.stdout.write(line)
        sys.stdout.flush()
