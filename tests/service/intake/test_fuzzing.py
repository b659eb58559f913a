"""Each parser that reads what strangers send, with bodies that were right and were damaged at random."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from tests.support.fuzzing import PARSERS, Tried, attempt, bodies

ROUNDS, OF_WHOLE_LOGS = 300, 40


@pytest.mark.parametrize("name", PARSERS)
def test_a_damaged_body_is_read_or_refused(name: str) -> None:
    tried = Tried()
    for body in islice(bodies(name, random.Random(name)), OF_WHOLE_LOGS if name == "log" else ROUNDS):
        attempt(name, body, tried)
    assert tried.faults == {}
    assert tried.read, "the good ones at least"
    assert tried.refused or name in NEVER_REFUSED


NEVER_REFUSED = {"records", "syslog", "splunk raw", "kernel", "log", "safetensors", "torch archive"}
"""what cannot be read there is counted, or told in the answer, and the rest is taken"""
