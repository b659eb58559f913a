"""Sending once, with a clock and a sleep that the test moves."""

from __future__ import annotations

import pytest

from diagnose.errors import DiagnoseError
from diagnose.shipping.destination import Away, Destination
from diagnose.shipping.send import Sending


class Far(Destination):
    """A service that is away for a while."""

    def __init__(self, *asks_for_s: float | None) -> None:
        super().__init__("http://127.0.0.1:9")
        self.asks_for_s = list(asks_for_s)

    def end(self, job: str, exit_code: int, attempt: int | None = None) -> None:
        if self.asks_for_s:
            raise Away("busy", where="there", retry_after_s=self.asks_for_s.pop(0))


def test_it_waits_longer_each_time_and_never_less_than_it_is_asked_to() -> None:
    slept: list[float] = []
    Sending(Far(None, None, None, 7.0), sleep=slept.append).end("a", 0, None)
    assert len(slept) == 4
    for wait, (least, most) in zip(slept, [(0.25, 0.5), (0.5, 1.0), (1.0, 2.0), (9.0, 11.0)], strict=True):
        assert least <= wait <= most


def test_after_an_answer_it_begins_with_the_shortest_wait_again() -> None:
    slept: list[float] = []
    far = Far(None, None, None)
    sending = Sending(far, sleep=slept.append)
    sending.end("a", 0, None)
    far.asks_for_s.append(None)
    sending.end("b", 0, None)
    assert slept[2] >= 1.0
    assert slept[3] <= 0.5


def test_patience_has_an_end() -> None:
    times = iter([0.0, 100.0, 301.0])
    with pytest.raises(DiagnoseError, match="busy"):
        Sending(Far(None, None, None), clock=lambda: next(times), sleep=lambda _: None).end("a", 0, None)
