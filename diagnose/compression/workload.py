"""Metadata and the shapes of the first lines -> a fingerprint of the kind of job; and how alike two of them are.

A job that is submitted again prints the same shapes at its beginning, and another job does not. The shapes are stored as a
min-hash sketch, which has a fixed size and estimates how much two sets have in common.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from array import array
from collections.abc import Mapping
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
        return sum(a == b for a, b in zip(self.sketch, other.sketch, strict=True)) / _SIZE


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
    rules = compression.matcher.rules
    for number in compression.counts.dropped:
        if rules[number].framework != "learned":
            features.add(zlib.crc32(rules[number].id.encode()))
    for kept in compression.kept:
        if kept.line > _LINES or len(features) > _LINES:
            break
        text = kept.text[:_LONGEST]
        if kept.rule == -1:
            features.add(zlib.crc32(_shape(text[_body_start(text) :])))
    metadata |= {key: value for key, value in told.items() if key in KEYS}
    return Fingerprint(tuple(sorted(metadata.items())), _sketch(features))


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
