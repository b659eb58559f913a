"""Each part of a live attempt belongs to one thread, and what one thread tells another arrives."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from service.live.attempt import LiveAttempt, Received
from service.live.rows import Rows
from service.live.stream import End, Reading, Stream
from service.live.timers import Timers
from tests.support.live import Live


class Between:
    """Calls ``do`` once: before the n-th line of an attempt's module that a scanner's thread executes, and waits for it."""

    def __init__(self, do: Any) -> None:
        self._do, self.wanted, self.lines = do, -1, 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        reads = threading.current_thread().name.startswith("scanner-") and code.co_filename.endswith("/service/live/attempt.py")
        return self._line if reads and code.co_name != "next_due" else None  # that one holds the scanner's lock

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self.lines += 1
            if self.lines == self.wanted:
                self._do()
        return self._line


@pytest.mark.slow
def test_a_label_that_is_set_between_any_two_lines_of_the_scanner_is_stored(tmp_path: Path) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        number = 0

        def label() -> None:
            asyncio.run_coroutine_threadsafe(live.jobs.open("job", 1, {"at": str(number)}), loop).result(10)

        between = Between(label)
        live = Live(tmp_path)
        threading.settrace(between)  # before the scanner's thread is made
        try:
            async with live:
                await live.send(b"first\n", labels={"at": "0"})
                await live.jobs.fresh("job")
                lines = 1
                while number < lines:
                    number += 1
                    between.lines, between.wanted = 0, number
                    await live.send(f"line {number}\n".encode(), labels={"other": str(number)})
                    await live.jobs.fresh("job")
                    lines = max(lines, between.lines)
                    if between.lines < number:  # it had less to do than before
                        break
                    await live.jobs.fresh("job")
                    assert (await live.attempts())[0].labels == {"at": str(number), "other": str(number)}, f"line {number}"
                assert number > 50
        finally:
            threading.settrace(None)  # type: ignore[arg-type]

    asyncio.run(run())


class Written:
    """Who wrote which field after the object was made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *classes: type) -> None:
        self.by: dict[str, set[str]] = defaultdict(set)
        for one in classes:
            self._watch(monkeypatch, one)

    def _watch(self, monkeypatch: pytest.MonkeyPatch, one: type) -> None:
        made = one.__init__  # type: ignore[misc]

        def init(this: Any, *args: Any, **more: Any) -> None:
            made(this, *args, **more)
            ready.add(id(this))

        def write(this: Any, name: str, value: Any) -> None:
            object.__setattr__(this, name, value)
            if id(this) in ready:
                self.by[f"{one.__name__}.{name}"].add(threading.current_thread().name)

        ready: set[int] = set()
        monkeypatch.setattr(one, "__init__", init)
        monkeypatch.setattr(one, "__setattr__", write)


def test_no_field_is_written_by_two_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written(monkeypatch, LiveAttempt, Received, Stream, Reading, Timers, Rows)

    async def run() -> None:
        async with Live(tmp_path) as live:
            for number in range(5):
                for job in ("one", "two"):
                    await live.send(f"iteration {number} loss 1.0\n".encode(), job=job, labels={"at": str(number)})
                    await live.send(b"RuntimeError: boom\n", job=job, source="t")
                    await live.jobs.fresh(job, report=True)
            await live.ingest.finish("one", None, End("exit", 1.0, 1))
            await live.jobs.fresh("one", report=True)

    asyncio.run(run())
    assert written.by["LiveAttempt._lsn"] == {"scanner-0"}
    assert written.by["Received.stored_lsn"] == {"MainThread"}
    shared = {field: threads for field, threads in written.by.items() if len(threads) > 1}
    assert shared == {}
    loop, scanner = {"MainThread"}, {"scanner-0"}
    owners: dict[str, set[str]] = defaultdict(set)
    for field, threads in written.by.items():
        owners[field.partition(".")[0]] |= threads
    of_loop, of_scanner = (
        dict.fromkeys(("Received", "Stream"), loop),
        dict.fromkeys(("LiveAttempt", "Reading", "Timers"), scanner),
    )
    assert owners == {**of_loop, **of_scanner, "Rows": scanner}
