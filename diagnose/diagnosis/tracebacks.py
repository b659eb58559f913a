"""Events -> Python tracebacks, also if several ranks write into one file.

The lines of a traceback have the same prefix (rank, host, logger) as its header, so ranks with a prefix never mix. Ranks
without one do: the latest open traceback takes the line, and an exception line without an open traceback stands alone. Chains
("During handling of", "direct cause", a DataLoader worker's "Original Traceback") are linked. Nothing here is judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from diagnose.diagnosis.evidence import Event
from diagnose.diagnosis.likeness import level

Link = Literal["context", "cause", "original", "remote"]

TOP = {"<module>", "_bootstrap", "_bootstrap_inner", "_run_module_as_main", "main", "run", "_main", "spawn_main", "wrapper"}
"""a traceback that nobody caught begins there; excerpts often begin a little later"""
_PROGRAM = {"<module>", "_run_module_as_main", "_bootstrap", "_bootstrap_inner", "spawn_main"}
"""nobody catches above these"""
_MOST_OPEN = 32
_SERVERS = (
    "uvicorn/",
    "hypercorn/",
    "gunicorn/",
    "daphne/",
    "aiohttp/web",
    "werkzeug/",
    "waitress/",
    "tornado/",
    "flask/app",
    "socketserver",
)
"""who calls the program once for each request, and answers the next one when it failed"""
_TROUBLE = {"soft", "error", "fatal"}
_QUOTED = 8
"""so many characters of a message are recognised where they stand again"""
_NO_END = "Error in atexit", "--- Logging error ---"
"""after these words Python shows a traceback, and goes on"""
_MOST_FRAMES = 64
_PATIENCE = 60
"""after so many foreign lines, a traceback that has not ended is given up"""

_LOST_PEER = {
    "ConnectionRefusedError",
    "ConnectionResetError",
    "ConnectionAbortedError",
    "BrokenPipeError",
    "EOFError",
    "FileNotFoundError",
}
"""so a process notices that another one of its own machine is gone: its socket answers no longer, or its file is not there"""
_SHARED = {"rebuild_storage_fd", "rebuild_storage_filename"}
"""so PyTorch opens a tensor that another process put into shared memory"""
_HEADER = re.compile(r"(?P<original>Original )?(?:Exception Group )?Traceback \(most recent call last\)")
_FRAME = re.compile(r'[\s|+]*File "(?P<path>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_INSIDE = re.compile(r'(?P<lead>(?:[^"]*\S )??)\s{1,4}File "[^"]+", line \d+')
_RICH = re.compile(r"[│|] (?P<path>[/~<][^\s:]*):(?P<line>\d+) in (?P<function>\S+)")
_LINKS: tuple[tuple[str, Link], ...] = (
    ("During handling of the above exception, another exception occurred", "context"),
    ("The above exception was the direct cause of the following exception", "cause"),
)
_BARS = re.compile(r"\s*(?:\| )+")
"""an exception group prints this before its lines"""
_EXCEPTION = re.compile(
    r"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:\([A-Za-z_. ]+\))?)(?::(?=\s|$)\s?(?P<message>.*)|\s*$)", re.DOTALL
)
_CLASS = re.compile(
    r"(?:.*\.)?_?(?:[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Iteration|Warning|Failure|Timeout|Expired|Group|Empty|Full|Died"
    r"|Unsupported|Failed|Resources|Required|NotFound|Abort|Denied)|Exception|(?<=\.)(?:Error|Failure)|[a-z]\w*\.error|error|gaierror"
    r"|timeout|herror|Empty|Full)"
    r"(?:\(.*\))?\Z"
)
_RAISES = re.compile(r"\s+raise (?:\w+\.)*(?P<type>[A-Z]\w*)\(")
_TORN = re.compile(r"\S\[(?:rank|default)\d+\]:|\[E\d{3,4} \d\d:|NCCL WARN")
"""another process began to write in the middle of the line"""
_TIME = re.compile(r"(?<!\d)\d++(?:[-/]\d+[-/]\d+[T ]\d+:\d+:\d+(?:[.,]\d+)?\S*|:\d+:\d+(?:[.,]\d+)?)")
_DIGITS = re.compile(r"\d+")


def _quoted(body: str, at: int) -> bool:
    """Whether this is quoted text in a message, with its line ends written as two characters."""
    return body[:at].endswith("\\n")


@dataclass(frozen=True, slots=True)
class Frame:
    path: str
    line: int
    function: str

    @property
    def library(self) -> bool:
        """Whether it is installed code, not code of the job."""
        return any(part in self.path for part in ("site-packages/", "dist-packages/", "/lib/python", "<frozen", "<string>"))


@dataclass(slots=True, eq=False)
class Traceback:
    """One traceback: from its header (if the log has it) to its exception line."""

    source: int
    begin: int
    """line of the header"""
    end: int
    """line of the exception; of the last frame if the log has no exception"""
    frames: list[Frame] = field(default_factory=list)
    exception: Event | None = None
    type: str = ""
    message: str = ""
    previous: Traceback | None = None
    """the traceback that it is chained to"""
    link: Link | None = None
    lead: str = ""
    """what the logger wrote before the header; empty if the interpreter printed it"""
    raises: Event | None = None
    """the line of the program that raised it, where the log shows that last: ``raise ValueError(``"""
    headless: bool = False
    """the log begins in the middle of it, or was cut there"""
    where: str = "main"
    """who raised it: main | thread | ignored"""
    gap: bool = False
    """lines are missing between its header and its first frame: it may be a copy that was folded"""
    under: Event | None = None
    """the logger's line directly above the header: whoever caught the exception logged it there"""
    above: Event | None = None
    """the line directly above the header"""

    def chain(self) -> Iterator[Traceback]:
        """This traceback and those before it, latest first."""
        one: Traceback | None = self
        while one is not None:
            yield one
            one = one.previous

    @property
    def raised_type(self) -> str | None:
        """The class of its exception by the line that raised it, if the log lacks the line of the exception."""
        found = _RAISES.match(self.raises.body) if self.raises is not None and self.exception is None else None
        return found["type"] if found is not None else None

    @property
    def from_top(self) -> bool:
        """Whether nobody caught it: it begins where programs and threads begin, or the log has lost its beginning."""
        return not self.frames or self.frames[0].function in TOP or self.headless

    @property
    def caught(self) -> bool:
        """Whether a handler logged it: it stands under a logger's line of trouble, and does not begin where a program does."""
        return self.under is not None and bool(self.frames) and self.frames[0].function not in _PROGRAM

    @property
    def of_import(self) -> bool:
        """Whether a library caught it while it was imported: it said the message in the line above, and the first frame is its.

        A program that nobody called begins in its own file, or in that of an interpreter.
        """
        first, said = list(self.chain())[-1], self.message.split("\n")[0].strip()
        inside = bool(first.frames) and first.frames[0].library and first.frames[0].function == "<module>"
        return inside and first.above is not None and len(said) >= _QUOTED and first.above.body.rstrip().endswith(said)

    @property
    def announced(self) -> Event | None:
        """The line with which whoever caught it announced it."""
        return list(self.chain())[-1].above if self.of_import else self.under

    @property
    def of_request(self) -> bool:
        """Whether it was raised while a server answered a request: only that request failed."""
        first = next((one for one in reversed(list(self.chain())) if one.frames), None)
        return first is not None and first.frames[0].library and any(name in first.frames[0].path for name in _SERVERS)

    @property
    def from_dead_worker(self) -> bool:
        """Whether a tensor in shared memory could not be opened, for the worker that made it is gone: no network was asked.

        A thread that still fetches tensors while a program ends says the same.
        """
        return (
            self.where == "main"
            and self.type.rpartition(".")[2] in _LOST_PEER
            and any(frame.function in _SHARED for frame in self.frames)
        )

    @property
    def own_frame(self) -> Frame | None:
        """The last frame of the job's own code."""
        return next((frame for frame in reversed(self.frames) if not frame.library), None)


@dataclass(slots=True)
class _Open:
    traceback: Traceback
    speaker: str
    lead: str
    indent: str = ""
    """what stands before each of its lines, where a program shows the output of another"""
    foreign: int = 0


def assemble(
    events: Iterable[Event], judged: Callable[[Event], bool] = lambda event: event.rule >= 0
) -> tuple[list[Traceback], set[int]]:
    """The tracebacks of one source, in the order of their ends, and the orders of the events that belong to them.

    ``judged``: whether a failure rule knows the line.
    """
    assembly = _Assembly(judged)
    return assembly.run(events), assembly.claimed


class _Assembly:
    def __init__(self, judged: Callable[[Event], bool]) -> None:
        self._judged = judged
        self._open: list[_Open] = []
        self._done: list[Traceback] = []
        self._last: dict[str, Traceback] = {}
        """speaker -> the traceback that ended last"""
        self._pending: dict[str, Link] = {}
        self._where: dict[str, str] = {}
        self._whole: dict[tuple[str, str, Frame], list[Frame]] = {}
        """class, message and deepest frame of a traceback -> all its frames"""
        self._above: Event | None = None
        self.claimed: set[int] = set()

    def run(self, events: Iterable[Event]) -> list[Traceback]:
        for event in events:
            text = event.text
            telling = "raceback" in text or "xception" in text or 'File "' in text or text.startswith(_NO_END)
            if telling or self._open:
                self._take(event, text[: event.start], telling=telling)
            self._above = event
        for entry in self._open:
            self._close(entry)
        return self._done

    def _take(self, event: Event, prefix: str, *, telling: bool) -> None:
        """``telling``: the line has a word of tracebacks. Any other line can only continue one."""
        speaker = _TIME.sub("", prefix).strip() if prefix else ""
        if telling and self._headed(event, speaker):
            return
        if telling and "Exception in thread" in event.body[:80]:
            self._where[speaker] = "thread"
        elif event.body.startswith("Exception ignored") or event.text.startswith(_NO_END):
            self._where[speaker] = "ignored"
            self.claimed.add(event.order)
        self._continue(event, speaker)

    def _headed(self, event: Event, speaker: str) -> bool:
        """Whether the line is the first of a traceback, or says how the next one hangs together with the last."""
        body = event.body
        if "Traceback" in body and (found := _HEADER.search(body)) is not None and not _quoted(body, found.start()):
            self.claimed.add(event.order)
            self._begin(event, body[: found.start()], speaker, original=bool(found["original"]))
            return True
        for phrase, link in _LINKS:
            if phrase in body:
                self._pending[speaker] = link
                return True
        return False

    def _continue(self, event: Event, speaker: str) -> None:
        """Give the line to the youngest traceback of its speaker that it belongs to."""
        for entry in reversed(self._open):
            if entry.speaker != speaker or (rest := _behind(event.body, entry.lead)) is None:
                continue
            if self._extend(entry, event, rest.removeprefix(entry.indent)):
                self.claimed.add(event.order)
                return
            if not entry.lead:
                return  # a foreign line: older tracebacks without a prefix cannot tell either
        self._begin_inside(event, speaker)

    def _begin_inside(self, event: Event, speaker: str) -> None:
        """The log begins, or was cut, in the middle of a traceback."""
        if 'File "' not in event.body or (found := _INSIDE.match(event.body)) is None or len(self._open) >= _MOST_OPEN:
            return
        lead = found["lead"] if found["lead"].strip(" |+") else ""
        entry = _Open(Traceback(event.source, event.line, event.line, lead=lead.strip(), headless=True), speaker, lead)
        self._open.append(entry)
        self._extend(entry, event, event.body[len(lead) :])
        self.claimed.add(event.order)

    def _begin(self, event: Event, lead: str, speaker: str, *, original: bool) -> None:
        if len(self._open) >= _MOST_OPEN:
            self._close(self._open.pop(0))
        indent = lead if lead.isspace() else ""
        lead = "" if lead.strip(" |+╭─│\"'") == "" else lead
        new = Traceback(event.source, event.line, event.line, lead=lead.strip(), where=self._where.pop(speaker, "main"))
        above = self._above
        if not lead and above is not None and above.line == event.line - 1:
            new.above = above
            new.under = above if level(above.text) in _TROUBLE else None
        last = self._last.get(speaker)
        link = self._pending.pop(speaker, None)
        if original:
            link = "original"
        if link is None and last is not None and last.message.endswith(":") and event.line - last.end <= 3:
            link = "remote"  # the message quotes the traceback of another process
        if last is not None and link is not None:
            new.previous, new.link = last, link
        self._open.append(_Open(new, speaker, lead, indent))

    def _extend(self, entry: _Open, event: Event, body: str) -> bool:
        """Add the line to this traceback if it belongs there, and say whether it does."""
        traceback = entry.traceback
        if (bars := _BARS.match(body)) is not None:
            body = body[bars.end() :]
        if (found := _FRAME.match(body) or _RICH.search(body)) is not None:
            traceback.gap |= not traceback.frames and not traceback.headless and event.line > traceback.begin + 1
            if len(traceback.frames) >= _MOST_FRAMES:
                del traceback.frames[_MOST_FRAMES // 2]
            traceback.frames.append(Frame(found["path"], int(found["line"]), (found["function"] or "").strip()))
            traceback.end, entry.foreign, traceback.raises = event.line, 0, None
            return True
        if _RAISES.match(body) is not None:
            traceback.raises = event
        if body[:1] in " \t~^|│╰+" or not body.strip(" |"):
            return not (self._judged(event) and _TORN.search(body))
        found = _EXCEPTION.match(body)
        if found is not None and (_CLASS.match(found["type"]) or self._may_be_class(entry, event, found)):
            traceback.exception, traceback.end = event, event.line
            traceback.type, traceback.message = found["type"], (found["message"] or "").strip()
            self._open.remove(entry)
            self._close(entry)
            return True
        entry.foreign += 1
        if entry.foreign > _PATIENCE:
            self._open.remove(entry)
            self._close(entry)
        return False

    def _may_be_class(self, entry: _Open, event: Event, found: re.Match[str]) -> bool:
        """Whether a dotted name is a class of exceptions not called like one: Python prints it right behind the frames."""
        name, message = found["type"], found["message"]
        if not entry.traceback.frames or "." not in name:
            return False
        return self._judged(event) or (entry.foreign == 0 and name.rpartition(".")[2][:1].isupper() and bool(message))

    def _close(self, entry: _Open) -> None:
        one = entry.traceback
        self._unfold(one)
        if one.link == "remote" and one.previous is not None and _twins(one, one.previous):
            one.previous = one.link = None
        self._last[entry.speaker] = one
        self._done.append(one)

    def _unfold(self, traceback: Traceback) -> None:
        """Folding leaves a copy of a traceback its deepest frame only. The others are those of the earlier one."""
        if traceback.exception is None or not traceback.frames:
            return
        key = traceback.type, _TIME.sub("", traceback.message), traceback.frames[-1]
        if len(traceback.frames) == 1 and traceback.gap and key in self._whole:
            traceback.frames = list(self._whole[key])
        else:
            self._whole[key] = traceback.frames


def _twins(one: Traceback, other: Traceback) -> bool:
    """Whether both were raised at the same place: by two ranks, say. Then neither quotes the other."""
    return bool(one.frames) and one.type == other.type and one.frames == other.frames


def _behind(body: str, lead: str) -> str | None:
    """``body`` after the logger's lead, in which numbers may differ. None if another logger wrote the line."""
    if not lead:
        return body
    head = body[: len(lead) + 8]
    if _DIGITS.sub("0", head).startswith(_DIGITS.sub("0", lead)):
        # Numbers may have other lengths, so walk both texts.
        at = 0
        for part in _DIGITS.split(lead):
            if not body.startswith(part, at):
                return None
            at += len(part)
            while at < len(body) and body[at].isdigit():
                at += 1
        return body[at:]
    return body if body[:1] in " \t" or _EXCEPTION.match(body) else None
