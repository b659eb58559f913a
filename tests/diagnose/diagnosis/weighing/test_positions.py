"""What the positions promise: last words count, and texts for readers do not."""

from __future__ import annotations

import pytest

from tests.support.logs import job_of, report_of

TEXT = (
    "the old man who had failed at sea told his friends that nothing was ever lost, and that a broken heart is no reason to"
    " stay at home when there are so many good things to see and so little time left\n"
)


WORDS_OF_A_FILM = [
    f"{first}{second}" for first in ("Sun", "Moon", "Rain", "Snow", "Wind") for second in ("rise", "fall", "light")
] + [f"{first} {second}" for first in ("Red", "Blue", "Green", "Grey", "White") for second in ("river", "garden", "window")]


@pytest.mark.parametrize(("ranks", "failed"), [(8, True), (1, False)])
def test_what_each_rank_says_once_is_not_said_often(ranks: int, failed: bool) -> None:
    said = "Status message: 1 worker(s) were killed due to the node running low on memory."
    tail = "".join(f"[rank{n % 8}]: {n} 0.{n} python -m ray.util.client.server\n" for n in range(40))
    log = "".join(f"[rank{n % ranks}]: {said}\n" for n in range(8)) + tail
    assert (report_of(log).outcome == "failed") is failed


def test_a_text_for_readers_is_no_message() -> None:
    assert report_of("sampling\n" * 12 + TEXT).outcome == "healthy"
    assert report_of("sampling\n" * 12 + "zorch: the mesh has failed and is lost\n").outcome == "failed"


def test_a_log_with_words_of_failure_everywhere_holds_texts() -> None:
    sentences = "".join(f"{n % 3} ||| {word} is a bad and broken film\n" for n, word in enumerate(WORDS_OF_A_FILM))
    assert report_of(sentences).outcome == "healthy"
    assert report_of("starting\n" * 12 + sentences[:160]).outcome == "failed"


def test_what_a_kernel_says_while_it_starts_is_no_failure_of_a_job() -> None:
    boot = "".join(f"[    {n // 10}.{n % 10}38924] pci 0000:e1:00.{n % 8}: BAR {n} is assigned\n" for n in range(40))
    said = "pci 0000:e1:00.0: DOE: ABORT timed out\n"
    for moment, as_text in (("    5.298924", True), ("98123.298924", False)):
        job = job_of(boot + f"[{moment}] {said}")
        (one,) = (one for one in job.finding(job.evidence()).weighed if one.kind == "line")
        assert ("prose" in one.signals) is as_text
