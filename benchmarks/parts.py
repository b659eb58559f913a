"""The parts of the comparison. Each gives a Section: text for people, and the same as data."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.children import ours
from benchmarks.contenders import CACHE, Contender, drain, nvrx, prefixed, product, raw, ripgrep
from benchmarks.measure import ENVIRONMENT, ROOT, Failed, Reading, Spread, reap, run, table
from benchmarks.mixed import log as mixed_log

RULES = Path(mixed_log.__file__).with_name("rules")
HEAD = ("", "MB/s", "klines/s", "ratio to raw: median (min-max)", "wall MB/s", "matched or kept")
TO_RAW, RAW_ALONE = "raw", "raw, the log alone"


@dataclass(slots=True)
class Section:
    title: str
    head: Sequence[str] = HEAD
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        body = [table(self.head, self.rows)] if self.rows else []
        return "\n".join([f"## {self.title}", *body, *(f"- {note}" for note in self.notes)])


def cached_log(megabytes: float, seed: int) -> Path:
    """The mixed log of this size, made once for each state of the generator."""
    sources = [
        Path(mixed_log.__file__),
        *sorted(Path(mixed_log.__file__).parent.glob("templates*/*")),
        Path(mixed_log.__file__).with_name("templates.py"),
    ]
    newest = max(path.stat().st_mtime for path in sources)
    path = CACHE / f"mixed-{megabytes:g}-{seed}.log"
    if not path.is_file() or path.stat().st_mtime < newest:
        say(f"making a log of {megabytes:g} MB")
        mixed_log.make(path, megabytes, seed)
    return path


def say(text: str) -> None:
    print(f"… {text}", file=sys.stderr, flush=True)


def head_of(log: Path, megabytes: float) -> Path:
    """The first whole lines of ``log``."""
    path = CACHE / f"{log.stem}.first-{megabytes:g}.log"
    with log.open("rb") as file:
        data = file.read(int(megabytes * 1e6))
    path.write_bytes(data[: data.rfind(b"\n") + 1] or data)
    return path


def gather(makers: Sequence[Callable[[], Contender]], section: Section) -> list[Contender]:
    """The contenders that are there. The section names those that are missing."""
    found = []
    for make in makers:
        try:
            found.append(make())
        except Failed as error:
            section.notes.append(f"left out: {error}")
    return found


def race(section: Section, contenders: list[Contender], log: Path, repeats: int, lines: int) -> None:
    """Run all contenders in turn, once per repetition. Ratios are of speeds within one repetition."""
    size = log.stat().st_size
    logs = {each.name: head_of(log, each.slice_mb) if each.slice_mb else log for each in contenders}
    readings: dict[str, list[Reading]] = {each.name: [] for each in contenders}
    with log.open("rb") as file:  # so that the file is in the page cache
        while file.read(1 << 22):
            pass
    lost: set[str] = set()
    for number in range(repeats):
        say(f"{section.title}: repetition {number + 1} of {repeats}")
        for each in contenders:
            if each.name in lost:
                continue
            try:
                readings[each.name].append(each.read(logs[each.name]))
            except Failed as error:
                lost.add(each.name)
                section.notes.append(f"failed: {each.name}: {error}")
    base = [size / reading.cpu_s for reading in readings[TO_RAW]]
    for each in contenders:
        own = readings[each.name]
        if each.name in lost or not own:
            continue
        bytes_in = int(own[0].told.get("bytes", logs[each.name].stat().st_size))
        speeds = [bytes_in / reading.cpu_s for reading in own]
        ratios = Spread.of([speed / against for speed, against in zip(speeds, base, strict=True)])
        speed = Spread.of(speeds)
        wall = Spread.of([bytes_in / reading.wall_s for reading in own])
        matched = outcome(own[0])
        section.rows.append(
            [
                each.name,
                f"{speed.median / 1e6:,.4g}",
                f"{speed.median * lines / size / 1e3:,.4g}",
                ratios.text(2 if ratios.median >= 0.1 else 4),
                f"{wall.median / 1e6:,.4g}",
                matched,
            ]
        )
        section.data[each.name] = {
            "bytes": bytes_in,
            "cpu_s": [reading.cpu_s for reading in own],
            "wall_s": [reading.wall_s for reading in own],
            "mb_per_s": speed.median / 1e6,
            "lines_per_s": speed.median * lines / size,
            "ratio_to_raw": {"median": ratios.median, "min": ratios.least, "max": ratios.most},
            "outcome": matched,
        }
        if each.slice_mb and bytes_in < size:
            section.notes.append(f"{each.name}: on the first {bytes_in / 1e6:.3g} MB; klines/s at the whole log's bytes a line")
        if each.note:
            section.notes.append(f"{each.name}: {each.note}")


def outcome(reading: Reading) -> str:
    told = reading.told
    if "kept_lines" in told:
        return f"kept {told['kept_lines']:,.0f}"
    if told.get("matched"):
        return f"matched {told['matched']:,}"
    if "matches" in told:
        return f"{told['matches']:,} reports"
    return f"kept {int(reading.text):,}" if reading.text.strip().isdigit() else ""


def mixed(style: str, log: Path, lines: int, options: Any) -> Section:
    """All contenders on the mixed log with one style of rules."""
    section = Section(f"mixed log of {log.stat().st_size / 1e6:,.0f} MB, {style} rules")
    rules = RULES / style
    plain = ours.patterns(rules)
    whole = prefixed() if style == "full" else plain
    makers: list[Callable[[], Contender]] = [partial(raw, TO_RAW, whole, f"{style}-raw")]
    if style == "full":
        makers.append(partial(raw, "raw, body patterns as they are", plain, "full-bodies"))
        section.notes.append(
            "raw and rg take no prefix off a line, so for them it is written into the patterns; "
            "as they are, the patterns of bodies miss lines with a prefix (see matched)"
        )
    makers.append(partial(raw, "raw, 1 MiB chunks, MULTILINE", whole, f"{style}-raw", "chunk"))
    makers += [partial(product, engine, rules) for engine in options.engines]
    if "core" in options.engines:
        makers.append(partial(product, "core", rules, folds=False))
    if not options.no_peers:
        makers.append(partial(ripgrep, whole, style))
        makers += [partial(drain, setting, options.slow_mb) for setting in ("defaults", "masked")]
        makers.append(partial(nvrx, options.slow_mb))
    race(section, gather(makers, section), log, options.repeats, lines)
    against(section)
    return section


def against(section: Section) -> None:
    """The product's first engine against each peer."""
    mine = next((name for name in section.data if name.startswith("diagnose")), None)
    for name in list(section.data):
        if mine is not None and not name.startswith(("diagnose", "raw")):
            compare(section, mine, name)


def compare(section: Section, mine: str, name: str) -> None:
    """How many times as fast as ``name`` ``mine`` is, for each repetition."""
    if mine not in section.data or name not in section.data:
        return
    own, row = section.data[mine], section.data[name]
    pairs = zip(own["cpu_s"], row["cpu_s"], strict=True)
    ratio = Spread.of([own["bytes"] / a / (row["bytes"] / b) for a, b in pairs])
    own.setdefault("ratio_to", {})[name] = {"median": ratio.median, "min": ratio.least, "max": ratio.most}
    section.notes.append(f"{mine} is {ratio.text()} times as fast as {name}")


def corpus(folder: Path, options: Any) -> list[Section]:
    """The shipped rules on each log of a folder."""
    sections = []
    shipped = ours.patterns(None)
    for path in sorted([*folder.glob("*.gz"), *folder.glob("*.log")]):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        times = max(1, int(-(-options.corpus_mb * 1e6 // max(len(data), 1))))
        log = CACHE / f"corpus-{path.name.removesuffix('.gz')}"
        with log.open("wb") as file:
            for _ in range(times):
                file.write(data if data.endswith(b"\n") else data + b"\n")
        section = Section(f"{path.name}, shipped rules")
        single = CACHE / f"corpus-{path.name.removesuffix('.gz')}.single"
        single.write_bytes(data)
        passes = min(times, options.passes)
        section.notes.append(
            f"{len(data) / 1e6:.3g} MB, repeated {times} times in one file for all; "
            f"the log alone is read {passes} times, each time with an empty cache of verdicts"
        )
        makers: list[Callable[[], Contender]] = [partial(raw, TO_RAW, shipped, "shipped")]
        makers.append(partial(raw, RAW_ALONE, shipped, "shipped", "line", single, passes))
        makers += [partial(product, engine, None) for engine in options.engines]
        makers += [partial(product, engine, None, single, passes) for engine in options.engines]
        if not options.no_peers:
            makers.append(partial(ripgrep, shipped, "shipped"))
        race(section, gather(makers, section), log, options.repeats, data.count(b"\n") * times)
        against(section)
        for engine in options.engines:
            compare(section, f"diagnose, {engine}, the log alone", RAW_ALONE)
        log.unlink()
        single.unlink()
        sections.append(section)
    if not sections:
        raise Failed(f"{folder} has no .gz or .log file")
    return sections


def growth(sizes: Sequence[float], options: Any) -> Section:
    """CPU time and memory while the log grows tenfold."""
    section = Section("growth, fragments rules", head=("", "MB/s", "cpu s", "peak MB"))
    for engine in options.engines[:1]:
        for size in sizes:
            log = cached_log(size, options.seed)
            say(f"growth: {size:g} MB")
            contender = product(engine, RULES / "fragments")
            own = [contender.read(log) for _ in range(min(options.repeats, 3))]
            cpu, peak = Spread.of([each.cpu_s for each in own]), Spread.of([each.peak_mb for each in own])
            speed = log.stat().st_size / cpu.median / 1e6
            section.rows.append([f"{contender.name}, {size:g} MB", f"{speed:.4g}", cpu.text(3), peak.text(0)])
            section.data[f"{engine} {size:g}"] = {
                "mb_per_s": speed,
                "cpu_s": cpu.median,
                "peak_mb": peak.median,
            }
    section.notes.append("linear is: the same MB/s in each row")
    return section


def memory(options: Any) -> Section:
    """Peak memory of ``diagnose replay`` on a long standard input, and how its memory grows while it follows a file."""
    section = Section("memory of diagnose replay", head=("", "peak MB"))
    log = cached_log(options.stdin_mb, options.seed)
    say(f"memory: {options.stdin_mb:g} MB on standard input")
    with subprocess.Popen(["cat", str(log)], stdout=subprocess.PIPE) as cat:
        reading = run([*ours.REPLAY, "-"], good=(0, 1, 3), stdin=cat.stdout)
        assert cat.stdout is not None
        cat.stdout.close()
    section.rows.append([f"{options.stdin_mb:g} MB on standard input, shipped rules", f"{reading.peak_mb:.0f}"])
    section.data["stdin_peak_mb"] = reading.peak_mb
    say(f"memory: following a file for {options.follow_s:g} s")
    samples, peak = follow(log, options.follow_s)
    middle, last = samples[len(samples) // 2], samples[-1]
    section.rows.append([f"--follow for {options.follow_s:g} s: after half the time, at the end, peak",
                         f"{middle:.0f}, {last:.0f}, {peak:.0f}"])  # fmt: skip
    section.data["follow"] = {"seconds": options.follow_s, "half_mb": middle, "end_mb": last, "peak_mb": peak}
    section.notes.append("flat is: the same at half the time and at the end")
    return section


def follow(log: Path, seconds: float, megabytes_a_second: float = 2.0) -> tuple[list[float], float]:
    """(resident MB, about once per second, of a replay that follows a growing file; the peak)."""
    with tempfile.TemporaryDirectory() as folder, log.open("rb") as text:
        path = Path(folder) / "rank0.log"
        path.write_bytes(text.readline())
        with path.open("ab") as grown:
            command = [*ours.REPLAY, "--follow", str(path)]
            child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT, env=ENVIRONMENT)
            samples, end = [], time.monotonic() + seconds
            while time.monotonic() < end and child.poll() is None:
                piece = text.read(int(megabytes_a_second * 1e6))
                if not piece:  # from the beginning again: as many shapes as the log has
                    text.seek(0)
                grown.write(piece)
                grown.flush()
                time.sleep(1)
                pages = Path(f"/proc/{child.pid}/statm").read_text().split()[1]
                samples.append(int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6)
            if child.returncode is not None:
                raise Failed(f"diagnose replay --follow ended by itself with status {child.returncode}")
            child.send_signal(signal.SIGINT)
            _, usage = reap(child)
            assert child.stderr is not None
            child.stderr.close()
    return samples, usage.ru_maxrss / 1024


def startup(options: Any) -> Section:
    """``diagnose replay`` of a tiny file against ``python -c pass``."""
    section = Section("start-up", head=("", "wall s: median (min-max)", "cpu s: median (min-max)"))
    tiny = CACHE / "tiny.log"
    tiny.write_text(" iteration 1/ 10 | lm loss: 1.0E+00 |\n")
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "diagnose replay, one line": [*ours.REPLAY, str(tiny)],
    }
    first = run(commands["diagnose replay, one line"], good=(0, 1, 3))
    own: dict[str, list[Reading]] = {name: [] for name in commands}
    for _ in range(max(options.repeats, 5)):
        for name, command in commands.items():
            own[name].append(run(command, good=(0, 1, 3)))
    for name, readings in own.items():
        wall, cpu = Spread.of([r.wall_s for r in readings]), Spread.of([r.cpu_s for r in readings])
        section.rows.append([name, wall.text(3), cpu.text(3)])
        section.data[name] = {"wall_s": wall.median, "cpu_s": cpu.median}
    python, replay = (section.data[name]["wall_s"] for name in commands)
    section.data["more_s"] = replay - python
    section.notes.append(f"diagnose replay takes {replay - python:.3f} s more; its first run here took {first.wall_s:.3f} s")
    return section


def sections(options: Any) -> Iterator[Section]:
    """The parts that were asked for, one after another."""
    if not options.no_mixed:
        log = cached_log(options.mb, options.seed)
        variety = mixed_log.shapes(log)
        varied = Section("the mixed log", data=dict(variety))
        varied.notes = [
            f"{variety['bytes'] / 1e6:,.1f} MB, {variety['lines']:,} lines, "
            f"{variety['long_lines']:,} of them of 64 kB and more",
            "distinct shapes (each run of digits masked): "
            f"{variety['distinct_of_lines']:.1%} of lines, {variety['distinct_of_bytes']:.1%} of bytes; "
            f"without the long lines {variety['distinct_of_lines_without_long']:.1%} "
            f"and {variety['distinct_of_bytes_without_long']:.1%}",
        ]
        yield varied
        for style in options.styles:
            yield mixed(style, log, int(variety["lines"]), options)
    if options.corpus:
        yield from corpus(options.corpus, options)
    if options.growth:
        yield growth((10, 100, 1000), options)
    if options.memory:
        yield memory(options)
    if options.startup:
        yield startup(options)
