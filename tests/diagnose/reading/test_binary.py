"""What is no log, and what is one although it does not look like text at first."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import pickle
import random
import sqlite3
import struct
import sys
import zipfile
from pathlib import Path

import pytest

from diagnose.reading.binary import LOOK, no_log
from tests.conftest import ROOT

LINE = b"2026-01-03 12:00:00,123 INFO iteration 12/ 9000 | lm loss: 1.2E+00\n"
CHANCE = random.Random(4)
RANDOM = CHANCE.randbytes(100_000)


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.log", LINE)
    return file.getvalue()


def database(folder: Path) -> bytes:
    connection = sqlite3.connect(folder / "x.db")
    connection.execute("create table lines (text)")
    connection.commit()
    connection.close()
    return (folder / "x.db").read_bytes()


NO_LOGS = {
    "random bytes": RANDOM,
    "a program": Path(sys.executable).read_bytes()[:100_000],
    "a zip archive": zipped(),
    "a pickle": pickle.dumps({"weights": [1.0, 2.0]}),
    "an old pickle": pickle.dumps({"weights": [1.0, 2.0]}, protocol=2),
    "a picture": (ROOT / "docs" / "images" / "job.png").read_bytes(),
    "numbers": struct.pack("<3000f", *(CHANCE.gauss(0, 0.02) for _ in range(3000))),
    "weights": struct.pack("<Q", 40) + b'{"a":{"dtype":"F32","shape":[2]}}       ' + bytes(8),
    "zeros": bytes(10_000),
    "EBCDIC": LINE.decode().encode("cp500") * 100,
    "packed in an unknown way": gzip.compress(LINE * 1000 + RANDOM, mtime=0)[20:],
}
LOGS = {
    "a log": LINE * 100,
    "one line without an end": b"killed",
    "nothing": b"",
    "UTF-8": "错误:内存不足\n".encode() * 1000,
    "UTF-8 that is cut inside a character": "错误:内存不足\n".encode()[1:] * 1000,
    "GBK": "2026-01-03 12:00:00 错误: 内存不足 rank 3\n".encode("gbk") * 100,
    "Latin-1": "2026-01-03 Gerät läuft über\n".encode("latin-1") * 100,
    "UTF-16 with a mark": LINE.decode().encode("utf-16") * 3,
    "UTF-16 without one": LINE.decode().encode("utf-16-le") * 100,
    "UTF-32 without one": LINE.decode().encode("utf-32-be") * 100,
    "Chinese in UTF-16 with a mark": ("错误内存不足\n" * 400).encode("utf-16"),
    "colours and progress bars": b"\x1b[31m 10%|\xe2\x96\x88   | 1/10 [00:01<00:09]\x1b[0m\r\b\b\x1b[2K" * 100,
    "zeros before the text, as of a file cut back while it is written": bytes(LOOK * 2) + LINE * 100,
    "zeros after the text, as of a disk that was full": LINE * 100 + bytes(LOOK * 2),
    "some bytes of damage": LINE * 30 + RANDOM[:200] + LINE * 100,
    "damage at its end": LINE * 200 + RANDOM[:LOOK],
    "source code": (ROOT / "diagnose" / "job.py").read_bytes(),
    "JSON": json.dumps([{"a": [1, 2, None]}] * 500).encode(),
    "a line that names a format": b"PK and PAR1 and BZh9 and %PDF are the first bytes of files\n",
}


def verdict(data: bytes) -> str | None:
    found = no_log(data[:LOOK], data[-LOOK:])
    return found.what if found else None


@pytest.mark.parametrize("data", NO_LOGS.values(), ids=NO_LOGS)
def test_no_logs(data: bytes) -> None:
    assert verdict(data) is not None


def test_a_database_is_no_log(tmp_path: Path) -> None:
    assert verdict(database(tmp_path)) == "a database"


@pytest.mark.parametrize("data", LOGS.values(), ids=LOGS)
def test_logs(data: bytes) -> None:
    assert verdict(data) is None


def test_random_bytes_of_any_kind_are_no_log() -> None:
    assert [n for n in range(300) if verdict(os.urandom(5000)) is None] == []


MARKS = [codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE]


@pytest.mark.parametrize("mark", MARKS)
def test_random_bytes_that_begin_like_a_mark_of_an_encoding_are_no_log(mark: bytes) -> None:
    """Each of the short marks is met in one of 65,536 random files."""
    assert [n for n in range(30) if verdict(mark + os.urandom(5000)) is None] == []


@pytest.mark.parametrize("mark", MARKS)
def test_damage_in_a_log_with_a_mark(mark: bytes) -> None:
    encoding = {2: "utf-16", 3: "utf-8-sig", 4: "utf-32"}[len(mark)]
    encoding = encoding if len(mark) == 3 else encoding + ("-le" if mark[0] == 0xFF else "-be")
    text = (LINE * 400).decode().encode(encoding.removesuffix("-sig"))
    assert verdict(mark + text) is None
    assert verdict(mark + text[:1501] + RANDOM[:40] + text[1541:]) is None
