"""The same logs in other dresses: ``python -m benchmarks.dresses CORPUS``.

A dress is a form in which shippers, launchers, terminals and editors pass on what a job printed. Every case of a labelled
corpus is put into each dress. Printed are the points that the reason and the root-cause line lose against the plain cases, and
how many more failures are called healthy. Line numbers are mapped back to the lines of the plain case.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from diagnose.accuracy import Label, judge, labels
from diagnose.job import Job
from diagnose.knowledge.rules import load
from diagnose.matching.matcher import Matcher
from diagnose.reading.sources import Source

Worn = tuple[bytes, list[int]]
"""a log, and for each of its lines the line of the plain case that it shows (from 1; 0: none)"""
_BEGIN = datetime(2026, 3, 4, 5, 6, 7, 123456, UTC)


def _time(number: int) -> datetime:
    return _BEGIN + timedelta(milliseconds=173 * number)


def _iso(number: int) -> str:
    return _time(number).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _clock(number: int) -> str:
    return _time(number).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]


def _level(line: str) -> str:
    return "stderr" if "Error" in line or "Traceback" in line or line.startswith("  ") else "stdout"


def _quoted(line: str) -> str:
    return json.dumps(line, ensure_ascii=False)


Write = Callable[[int, str], str]
LINES: dict[str, Write] = {
    "ISO time": lambda n, line: f"{_iso(n)} {line}",
    "time in brackets": lambda n, line: f"[{_clock(n)}] {line}",
    "container runtime (CRI)": lambda n, line: f"{_iso(n)} {_level(line)} F {line}",
    "kubectl --prefix": lambda n, line: f"[pod/train-worker-0/pytorch] {line}",
    "srun -l": lambda n, line: f"3: {line}",
    "torchrun --tee": lambda n, line: f"[default3]:{line}",
    "Ray worker": lambda n, line: f"(TrainWorker pid=4711, ip=10.0.0.7) {line}",
    "docker compose": lambda n, line: f"trainer-1  | {line}",
    "SageMaker": lambda n, line: f"[1,mpirank:3,algo-1]<stderr>:{line}",
    "CloudWatch": lambda n, line: f"{_iso(n)} {_time(n):%Y-%m-%dT%H:%M:%S.%fZ} {line}",
    "syslog": lambda n, line: f"{_time(n):%b %d %H:%M:%S} gpu-017 trainer[4711]: {line}",
    "syslog RFC 5424": lambda n, line: f"<134>1 {_iso(n)} gpu-017 trainer 4711 - - {line}",
    "dmesg -T": lambda n, line: f"[{_time(n):%a %b %d %H:%M:%S %Y}] {line}",
    "ANSI colours": lambda n, line: f"\x1b[31m{line}\x1b[0m",
    "colours as ^[[31m": lambda n, line: f"^[[31m{line}^[[0m",
    "colours as [31m": lambda n, line: f"[31m{line}[0m",
    "colours as #033[31m": lambda n, line: f"#033[31m{line}#033[0m",
    r"colours as \x1b[31m": lambda n, line: rf"\x1b[31m{line}\x1b[0m",
    r"colours as \u001b[31m": lambda n, line: rf"\u001b[31m{line}\u001b[0m",
    "docker json-file": lambda n, line: json.dumps({"log": line + "\n", "stream": _level(line), "time": _iso(n)}),
    "JSON with msg": lambda n, line: json.dumps({"ts": _time(n).timestamp(), "level": "info", "msg": line}),
    "JSON with message and level": lambda n, line: json.dumps(
        {"@timestamp": _iso(n), "level": "ERROR" if _level(line) == "stderr" else "INFO", "message": line, "host": "gpu-017"}
    ),
    "JSON with a key of its own": lambda n, line: json.dumps({"seq": n, "origin": "job-8811", "payload_text": line}),
    "JSON inside JSON": lambda n, line: json.dumps({"timestamp": _iso(n), "severity": "INFO", "data": {"msg": line}}),
    "journalctl -o json": lambda n, line: json.dumps(
        {"__REALTIME_TIMESTAMP": str(int(_time(n).timestamp() * 1e6)), "_HOSTNAME": "gpu-017", "PRIORITY": "6", "MESSAGE": line}
    ),
    "logfmt": lambda n, line: f"time={_iso(n)} level=info msg={_quoted(line)}",
    "grep -n": lambda n, line: f"{n}:{line}",
    "grep -Hn": lambda n, line: f"logs/rank_3.out:{n}:{line}",
    "cat -n": lambda n, line: f"{n:6d}\t{line}",
    "quoted lines": lambda n, line: _quoted(line),
    "Python's bytes": lambda n, line: repr(line.encode() + b"\n"),
    "wrapper [INFO] stdout:": lambda n, line: f"{_clock(n)} [INFO] stdout: {line}",
    "wrapper INFO:__main__:": lambda n, line: f"INFO:__main__:{line}",
    "wrapper - WARNING -": lambda n, line: f"{_clock(n)} - launcher - WARNING - {line}",
    "wrapper INFO | job |": lambda n, line: f"INFO | job | {line}",
    "trailing blanks": lambda n, line: line + "   ",
    "Windows-1252 signs": lambda n, line: line.replace("'", "\udc92").replace('"', "\udc93") if n % 7 == 0 else line,
}  # fmt: skip
_HEALTHY = "step {0}/90000 | loss {1:.4f} | grad_norm {2:.3f} | lr 3.0e-04 | 12345 tokens/s"


def _bytes(line: str) -> bytes:
    return line.encode("utf-8", "surrogateescape")


def _each(write: Write) -> Callable[[list[str]], Worn]:
    def wear(lines: list[str]) -> Worn:
        texts = [write(number, line) for number, line in enumerate(lines, 1)]
        return b"".join(_bytes(text) + b"\n" for text in texts), list(range(1, len(lines) + 1))

    return wear


def _encoded(encoding: str, mark: str = "") -> Callable[[list[str]], Worn]:
    def wear(lines: list[str]) -> Worn:
        text = mark + "".join(_bytes(line).decode("utf-8", "replace") + "\r\n" for line in lines)
        return text.encode(encoding), list(range(1, len(lines) + 1))

    return wear


def _ended(end: bytes) -> Callable[[list[str]], Worn]:
    return lambda lines: (b"".join(_bytes(line) + end for line in lines), list(range(1, len(lines) + 1)))


def _broken(width: int) -> Callable[[list[str]], Worn]:
    def wear(lines: list[str]) -> Worn:
        out, shown = bytearray(), []
        for number, line in enumerate(lines, 1):
            for at in range(0, max(1, len(line)), width):
                out += _bytes(line[at : at + width]) + b"\n"
                shown.append(number)
        return bytes(out), shown

    return wear


def _csv(lines: list[str]) -> Worn:
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(["timestamp", "level", "message"])
    for number, line in enumerate(lines, 1):
        rows.writerow([_iso(number), "INFO", line.replace("\r", "")])
    return _bytes(file.getvalue()), [0, *range(1, len(lines) + 1)]


def _export(lines: list[str]) -> Worn:
    out, shown = bytearray(), []
    for number, line in enumerate(lines, 1):
        out += b"__CURSOR=s=1;i=%d\n__REALTIME_TIMESTAMP=%d\n_HOSTNAME=gpu-017\nPRIORITY=6\nMESSAGE=%b\n\n" % (
            number, int(_time(number).timestamp() * 1e6), _bytes(line))  # fmt: skip
        shown += [number] * 6
    return bytes(out), shown


def _interleaved(lines: list[str]) -> Worn:
    """Eight ranks print the same, each a little later than the one before."""
    out, shown = bytearray(), []
    for turn in range(len(lines) + 7):
        for rank in range(8):
            if 0 <= (number := turn - rank) < len(lines):
                out += b"[rank%d]: %b\n" % (rank, _bytes(lines[number]))
                shown.append(number + 1)
    return bytes(out), shown


def _after_healthy(lines: list[str]) -> Worn:
    before = [_HEALTHY.format(n, 11 - n / 200 if n < 1600 else 3 - n / 9000, 1 + n % 7 / 9) for n in range(1, 2001)]
    return b"".join(_bytes(line) + b"\n" for line in (*before, *lines)), [0] * 2000 + list(range(1, len(lines) + 1))


def _mixed(lines: list[str]) -> Worn:
    """The first half as it was printed, the second as in docker's log file."""
    half, write = len(lines) // 2, LINES["docker json-file"]
    texts = [line if number <= half else write(number, line) for number, line in enumerate(lines, 1)]
    return b"".join(_bytes(text) + b"\n" for text in texts), list(range(1, len(lines) + 1))


DRESSES: dict[str, Callable[[list[str]], Worn]] = {
    **{name: _each(write) for name, write in LINES.items()},
    "CSV": _csv,
    "journalctl -o export": _export,
    "CRLF": _ended(b"\r\n"),
    "UTF-16 LE, mark": _encoded("utf-16-le", "\ufeff"),
    "UTF-16 BE, mark": _encoded("utf-16-be", "\ufeff"),
    "UTF-16 LE": _encoded("utf-16-le"),
    "UTF-16 BE": _encoded("utf-16-be"),
    "UTF-32 LE, mark": _encoded("utf-32-le", "\ufeff"),
    "UTF-32 BE": _encoded("utf-32-be"),
    "UTF-8 with a mark": lambda lines: (b"\xef\xbb\xbf" + _ended(b"\n")(lines)[0], list(range(1, len(lines) + 1))),
    "broken at 80": _broken(80),
    "broken at 120": _broken(120),
    "broken at 132": _broken(132),
    "eight ranks interleaved": _interleaved,
    "2,000 healthy lines before": _after_healthy,
    "plain, then docker json-file": _mixed,
}


@dataclass(frozen=True)
class Outcome:
    reason: bool
    line: bool | None
    """None: the label names no line"""
    healthy: bool
    said: str
    at: int


@dataclass(frozen=True)
class Loss:
    """What one dress costs, in points, and the cases that it makes worse."""

    dress: str
    reason: float
    line: float
    healthy: int
    worse: list[str]


def diagnosed(label: Label, data: bytes, shown: Sequence[int], plain: Source, matcher: Matcher, folder: Path) -> Outcome:
    """The outcome of a case in a dress. ``plain`` is the case itself, whose lines the label counts."""
    path = folder / Path(label.file).name
    path.write_bytes(data)
    source = Source(str(path), path)
    job = Job(label.file, [source], matcher)
    for chunk in source.chunks():
        job.feed(0, chunk)
    job.close(0)
    report = job.report()
    job.compression.kept.close()
    at = 0
    root = report.diagnosis.root_cause
    if root is not None:
        at = shown[root.line - 1] if root.line <= len(shown) else 0
        moved = root.model_copy(update={"line": max(at, 1), "source": plain.name})
        report = report.model_copy(update={"diagnosis": report.diagnosis.model_copy(update={"root_cause": moved})})
    verdict = judge(label, report, [plain])
    line = None if label.root_cause_line is None else verdict.near and at > 0
    healthy = report.diagnosis.reason == "healthy" and label.reason != "healthy"
    return Outcome(verdict.reason_right, line, healthy, report.diagnosis.reason, at)


def losses(corpus: Path, every: int, only: str) -> Iterator[Loss]:
    matcher = Matcher(load())
    cases = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for label in labels(corpus)[::every]:
            source = Source(str(corpus / label.file), corpus / label.file)
            data = b"".join(source.chunks()) if source.path is not None and source.path.is_file() else b""
            if not data:
                continue  # a case of several files
            text = data.decode("utf-8", "surrogateescape")
            lines = text.removesuffix("\n").split("\n")
            plain = diagnosed(label, data, range(1, len(lines) + 1), source, matcher, folder)
            cases.append((label, [line.removesuffix("\r") for line in lines], source, plain))
        for dress, wear in DRESSES.items():
            if only not in dress:
                continue
            pairs = [
                (label, plain, diagnosed(label, *wear(lines), source, matcher, folder)) for label, lines, source, plain in cases
            ]
            lined = [(plain, worn) for _, plain, worn in pairs if plain.line is not None]
            yield Loss(
                dress,
                100 * sum(plain.reason - worn.reason for _, plain, worn in pairs) / max(1, len(pairs)),
                100 * sum(bool(plain.line) - bool(worn.line) for plain, worn in lined) / max(1, len(lined)),
                sum(worn.healthy - plain.healthy for _, plain, worn in pairs),
                [
                    f"{label.file}: {plain.said}:{plain.at} -> {worn.said}:{worn.at}"
                    for label, plain, worn in pairs
                    if worn.reason < plain.reason or bool(worn.line) < bool(plain.line)
                ],
            )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dresses", description=__doc__)
    parser.add_argument("corpus", type=Path, metavar="CORPUS", help="a folder with logs and labels.tsv")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take every Nth case only")
    parser.add_argument("--only", default="", metavar="TEXT", help="dresses whose names hold this")
    parser.add_argument("--worse", action="store_true", help="name the cases that come out worse")
    parser.add_argument("--json", action="store_true", help="one line of JSON per dress")
    arguments = parser.parse_args()
    found = []
    if not arguments.json:
        print(f"{'dress':32} {'reason':>7} {'line':>7} {'healthy':>8}")
    for loss in losses(arguments.corpus, arguments.every, arguments.only):
        found.append(loss)
        if arguments.json:
            print(json.dumps(vars(loss)), flush=True)
            continue
        print(f"{loss.dress:32} {-loss.reason:7.1f} {-loss.line:7.1f} {loss.healthy:8d}", flush=True)
        if arguments.worse:
            for case in loss.worse:
                print(f"    {case}")
    if found and not arguments.json:
        each = [(loss.reason + loss.line) / 2 for loss in found]
        worst = max(found, key=lambda loss: max(loss.reason, loss.line))
        print(
            f"\n{len(found)} dresses; mean loss: reason {sum(one.reason for one in found) / len(found):.2f}, "
            f"line {sum(one.line for one in found) / len(found):.2f}, both {sum(each) / len(each):.2f} points; "
            f"worst {max(worst.reason, worst.line):.1f} ({worst.dress})"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
