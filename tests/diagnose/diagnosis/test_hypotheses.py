"""What one candidate for the root cause says of itself."""

from __future__ import annotations

import pytest

from diagnose.diagnosis.evidence import Event
from diagnose.diagnosis.hypotheses import Hypothesis


@pytest.mark.parametrize(
    ("reason", "symptom", "ends"),
    [("runtime_error", True, True), ("runtime_error", False, False), ("nccl_timeout", True, False)],
    ids=["an echo of some error", "some error", "an echo of a known failure"],
)
def test_only_an_echo_of_who_knows_what_ends_a_process_by_itself(reason: str, symptom: bool, ends: bool) -> None:
    event = Event(0, 0, 1, "it went wrong", -1, 0)
    assert Hypothesis(event, None, reason, 0, False, symptom).ends_process == ends
