"""Metadata and the shapes of the first lines -> a fingerprint of the kind of job; and how alike two of them are.

A job that is submitted again prints the same shapes at its beginning, and another job does not. The shapes are stored as a
min-hash sketch, which has a fixed size and estimates how much two sets have in common. One kind of line with a new name in each
would fill a sketch, so what changes from line to line counts once. And what is known of both jobs speaks for them: the same
script of the same user needs few lines in common.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diagnose.compression.kept_log import Compression
from diagnose.matching.databases import core
from diagnose.matching.shapes import shape
from diagnose.reading.prefixes import body_start

HEAD = 256 << 10
"""a fingerprint is made of about so many bytes of a job"""
FIRST = 32 << 10
"""the command that began the job is looked for in so many bytes"""
KEYS = ("user", "script", "framework", "image", "arguments")
ALIKE = 0.5
"""jobs of one workload have this share of a sketch in common"""

_SPEAKS = {"script": 0.3, "image": 0.2, "user": 0.15, "arguments": 0.15}
"""how much the same script and so on speak for two jobs being of one workload"""
_LEAST = 0.05
"""but not for jobs that have fewer lines in common: many scripts are called train.py"""
_FREE = 8
"""more different words than this in one place of lines that are alike otherwise are names"""

_shape, _body_start = (core.shape, core.body_start) if core is not None else (shape, body_start)
_SIZE = 64
_PRIME = (1 << 61) - 1
_FACTORS = tuple(
    (zlib.crc32(b"a%d" % n) << 20 | 1, zlib.crc32(b"b%d" % n)) for n in range(_SIZE)
)  # any will do, if they never change
_PACKED = array("Q", (number for pair in _FACTORS for number in pair)).tobytes()
_LINES = 2000
_LONGEST = 300
_TOLD = {
    "script": (
        b".py",
        re.compile(rb"(?:python3?|torchrun|srun|deepspeed|accelerate launch)\b[^\n]{0,300}?[\s/]([\w.-]+\.py)\b"),
        True,  # a search that ignores case takes five times as long
    ),
    "user": (b"user=", re.compile(rb"\b(?:SLURM_JOB_USER|USER)=([\w.-]{1,64})"), False),
    "image": (b"--container-image", re.compile(rb"--container-image[= ]([\w./:#@+-]{1,200})"), False),
}
"""bytes that must be there in lower case (a quick test); the pattern; whether it is for the text in lower case"""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    metadata: tuple[tuple[str, str], ...] = ()
    sketch: tuple[int, ...] = ()
    """32 bits each; () for a job that has said nothing"""

    def __str__(self) -> str:
        """Short, and the same if the same job is submitted again."""
        about = hashlib.sha256(repr(self.metadata).encode()).hexdigest()[:8] if self.metadata else "0" * 8
        seen = hashlib.sha256(repr(self.sketch).encode()).hexdigest()[:8] if self.sketch else "0" * 8
        return f"{about}-{seen}"

    def likeness(self, other: Fingerprint) -> float:
        """0 to 1. Jobs that are known to run different scripts are not alike."""
        ours, theirs = dict(self.metadata), dict(other.metadata)
        if any(ours[key] != theirs[key] for key in ("script", "image") if key in ours and key in theirs):
            return 0.0
        if not self.sketch or not other.sketch:
            return 0.0
        same = sum(a == b for a, b in zip(self.sketch, other.sketch, strict=True)) / _SIZE
        told = sum(weight for key, weight in _SPEAKS.items() if key in ours and ours[key] == theirs.get(key))
        return 1.0 - (1.0 - same) * (1.0 - told) if same >= _LEAST else same


def fingerprint(compression: Compression, told: Mapping[str, str], first: bytes = b"") -> Fingerprint:
    """The fingerprint of what was read so far.

    ``told``: metadata from outside. It counts more than what ``first``, the first bytes, show.
    """
    metadata: dict[str, str] = {}
    first = first[:FIRST]
    folded = first.lower()
    for key, (must, pattern, lower) in _TOLD.items():
        if must in folded and (found := pattern.search(folded if lower else first)):
            metadata[key] = first[slice(*found.span(1))].decode("utf-8", "replace")
    features: set[int] = set()
    shapes: dict[bytes, None] = {}
    rules = compression.matcher.rules
    for number in compression.counts.dropped:
        if rules[number].framework != "learned":
            features.add(zlib.crc32(rules[number].id.encode()))
    for kept in compression.kept:
        if kept.line > _LINES or len(shapes) > _LINES:
            break
        text = kept.text[:_LONGEST]
        if kept.rule == -1:
            shapes[_shape(text[_body_start(text) :])] = None
    features |= {zlib.crc32(text) for text in unnamed(list(shapes))}
    metadata |= {key: value for key, value in told.items() if key in KEYS}
    return Fingerprint(tuple(sorted(metadata.items())), _sketch(features))


def unnamed(shapes: Sequence[bytes]) -> set[bytes]:
    """The shapes, but those that differ only in names are one.

    Many shapes are of one kind if they have the same marks between their words, and a word in common, in the same place. Of
    these, words that are always others are left out.
    """
    alike: dict[tuple[bytes, ...], list[bytes]] = {}
    for text in shapes:
        alike.setdefault(tuple(_MARKS.findall(text)), []).append(text)
    found: set[bytes] = set()
    for texts in alike.values():
        left = [(text, _MARKS.split(text)) for text in texts]
        for place in range(len(left[0][1])):
            kinds: dict[bytes, list[tuple[bytes, list[bytes]]]] = {}
            for row in left:
                kinds.setdefault(row[1][place], []).append(row)
            left = [row for word, rows in kinds.items() if len(rows) <= _FREE or not word for row in rows]
            for word, rows in kinds.items():
                if len(rows) > _FREE and word:
                    found |= _one_kind([words for _, words in rows])
        found.update(text for text, _ in left)
    return found


def _one_kind(rows: Sequence[Sequence[bytes]]) -> set[bytes]:
    """The words of lines of one kind, without those that are names."""
    often = [len(set(column)) for column in zip(*rows, strict=True)]
    return {b" ".join(b"*" if seen > _FREE else word for word, seen in zip(row, often, strict=True)) for row in rows}


_MARKS = re.compile(rb"[^A-Za-z0-9_\x80-\xff\x00-\x08]+")


def sketch(features: set[int]) -> tuple[int, ...]:
    """The min-hash sketch of a set of 32-bit numbers. The native core has a twin of it."""
    return tuple(min(((a * feature + b) % _PRIME for feature in features), default=-1) & 0xFFFFFFFF for a, b in _FACTORS)


def _sketch(features: set[int]) -> tuple[int, ...]:
    if not features:
        return ()
    if core is None:
        return sketch(features)
    found: tuple[int, ...] = core.sketch(_PACKED, array("I", features).tobytes())
    return found


def nearest(job: Fingerprint, workloads: Mapping[str, Fingerprint]) -> str | None:
    """The workload that a job belongs to; None if it is like none."""
    likeness, name = max(((job.likeness(other), name) for name, other in workloads.items()), default=(0.0, ""))
    return name if likeness >= ALIKE else None
