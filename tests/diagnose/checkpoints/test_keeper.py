from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from diagnose import client
from diagnose.checkpoints import manifest, marks
from diagnose.checkpoints.asking import Asking
from diagnose.checkpoints.good import Alarm
from diagnose.checkpoints.keeper import Keeper, delete, using
from tests.diagnose.checkpoints.samples import archive, sealed


class Told:
    """In place of the client."""

    def __init__(self) -> None:
        self.told: list[tuple[int, bool | None, str | None]] = []

    def checkpoint(
        self, step: int, path: str | os.PathLike[str], *, healthy: bool | None = None, why: str | None = None
    ) -> None:
        self.told.append((step, healthy, why))


def steps(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def with_facts(folder: Path, step: int, **facts: object) -> Path:
    path = sealed(folder, step)
    manifest.seal(path, step, facts)
    return path


def test_verdicts_are_written_and_told_when_they_change(tmp_path: Path) -> None:
    told = Told()
    keeper = Keeper(tmp_path, told)
    sealed(tmp_path, 100)
    keeper.saved()
    keeper.saved()
    assert told.told == [(100, None, "nothing was saved after it yet")]
    sealed(tmp_path, 200)
    keeper.saved()
    assert told.told[1:] == [(100, True, "the training went on to step 200 without an alarm"), (200, None, told.told[0][2])]
    verdict = marks.read(tmp_path / "step_000000100")
    assert verdict is not None
    assert verdict.good


def test_an_alarm_spoils_what_was_saved_after_it_and_that_stays(tmp_path: Path) -> None:
    told = Told()
    keeper = Keeper(tmp_path, told, keep=1, thin=())
    for step in (100, 200, 300):
        sealed(tmp_path, step)
        keeper.saved()
    assert steps(tmp_path) == ["step_000000200", "step_000000300"]  # the newest, and the newest good one
    keeper.alarm(250, "the loss rose to 9.1")
    keeper.alarm(260, "the loss rose to 9.2")
    assert (300, False, "at step 250 the loss rose to 9.1") in told.told
    for step in (400, 500, 600):
        sealed(tmp_path, step)
        keeper.saved()
    assert "step_000000200" in steps(tmp_path)  # every loop that keeps the last three has deleted it by now
    later = Keeper(tmp_path)
    assert {one.step: one.judged.state for one in later.judged()} == {
        200: "good",
        300: "bad",
        400: "bad",
        500: "bad",
        600: "bad",
    }


def test_after_the_alarm_the_training_may_be_good_again(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, keep=1, thin=())
    keeper.alarm(50, "the loss rose")
    keeper.alarm_over(90)
    for step in (100, 200, 300):
        sealed(tmp_path, step)
        keeper.saved()
    assert {one.step: one.judged.state for one in keeper.judged()} == {200: "good", 300: "open"}


def test_what_the_service_says_reaches_the_verdicts_and_stays(tmp_path: Path) -> None:
    told = Told()
    keeper = Keeper(tmp_path, told, keep=None)
    for step in (100, 200, 300, 400):
        sealed(tmp_path, step)
        keeper.saved()
    hung = client.Alarm(250, "it stood still for 20 minutes", "hang")
    fell = client.Alarm(100, "its accuracy fell", "score", "/elsewhere/step_000000100")
    keeper.hear(client.Word(alarms=(hung,)))
    keeper.hear(client.Word(alarms=(hung, fell)))
    keeper.hear(client.Word(alarms=(hung, fell)))
    said = "before the next checkpoint, at step 250: it stood still for 20 minutes"
    assert told.told[-2:] == [(200, None, said), (100, None, "its accuracy fell")]
    assert keeper.alarms == [Alarm(250, "it stood still for 20 minutes", "hang", over=250)]
    sealed(tmp_path, 500)
    later = Keeper(tmp_path, keep=None)  # of the next process, which was not told
    later.saved()
    found = {one.step: (one.judged.state, one.judged.why) for one in later.judged()}
    assert found[100] == ("open", "its accuracy fell")
    assert found[200] == ("open", said)
    assert (found[300][0], found[400][0], found[500][0]) == ("good", "good", "open")


def test_a_hang_after_the_newest_is_forgiven_when_the_training_goes_on_from_it(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    sealed(tmp_path, 100)
    keeper.saved()
    keeper.hear(client.Word(alarms=(client.Alarm(150, "it stood still", "hang"),)))
    later = Keeper(tmp_path)
    sealed(tmp_path, 200)
    later.saved()
    assert {one.step: one.judged.state for one in later.judged()} == {100: "good", 200: "open"}


def test_what_holds_no_numbers_is_bad(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    with_facts(tmp_path, 100, inf=["mask"])
    with_facts(tmp_path, 200, inf=["mask", "model.weight"])
    with_facts(tmp_path, 300, nan=["optimizer.state"], inf=["mask"])
    found = {one.step: (one.judged.state, one.judged.why) for one in keeper.judged()}
    assert found[100][0] == "good"  # a mask is meant to be infinite: it was so from the beginning
    assert found[200] == ("bad", "model.weight hold what is no finite number")
    assert found[300] == ("bad", "optimizer.state hold what is no finite number")


def test_what_is_in_use_is_not_deleted(tmp_path: Path) -> None:
    path = sealed(tmp_path, 100)
    with using(path):
        delete(path)
        assert (path / manifest.NAME).exists()
    delete(path)
    assert not path.exists()


def test_other_folders_are_never_deleted(tmp_path: Path) -> None:
    sealed(tmp_path, 1).rename(tmp_path / "mine_000000001")
    keeper = Keeper(tmp_path, keep=1, thin=())
    for step in (100, 200, 300, 400):
        sealed(tmp_path, step)
        keeper.saved()
    assert steps(tmp_path) == ["mine_000000001", "step_000000300", "step_000000400"]


def test_what_a_run_that_was_killed_left_unfinished_is_deleted(tmp_path: Path) -> None:
    archive(tmp_path / "step_000000050" / "__0_0.distcp")
    os.utime(tmp_path / "step_000000050", (time.time() - 60, time.time() - 60))
    keeper = Keeper(tmp_path)
    archive(tmp_path / "step_000000200" / "__0_0.distcp")  # this one is being written
    os.utime(tmp_path / "step_000000200", (time.time() + 60, time.time() + 60))
    sealed(tmp_path, 100)
    keeper.saved()
    assert steps(tmp_path) == ["step_000000100", "step_000000200"]


# Who asks for a checkpoint


def test_a_signal_asks_for_one_and_the_handler_before_still_hears_it() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        asking = Asking(every_s=3600)
        asking.listen(signal.SIGUSR1)
        assert not asking.due(None)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert (asking.due(None), asking.now, asking.ending, heard) == (True, "the signal SIGUSR1", False, [signal.SIGUSR1])
        asking.saved(0.1)
        assert not asking.due(None)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_ends_the_process_waits_for_the_checkpoint_unless_the_signal_comes_again() -> None:
    """Ray's and submitit's handlers do that."""

    def end(number: int, frame: Any) -> None:
        raise SystemExit(1)

    before = signal.signal(signal.SIGTERM, end)
    try:
        asking = Asking(every_s=3600)
        asking.listen(signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert (asking.due(None), asking.ending) == (True, True)
        with pytest.raises(SystemExit):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def ends(number: int, frame: Any) -> None:
    raise SystemExit(1)


@pytest.fixture
def asked() -> Iterator[Asking]:
    """Of before are handlers that end the process."""
    numbers = signal.SIGTERM, signal.SIGUSR1
    before = [signal.signal(number, ends) for number in numbers]
    asking = Asking(every_s=3600)
    asking.listen(*numbers)
    yield asking
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_an_end_is_postponed_once_whatever_was_saved_meanwhile(asked: Asking) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    asked.saved(0.1)
    with pytest.raises(SystemExit):
        os.kill(os.getpid(), signal.SIGTERM)


def test_an_end_is_postponed_once_whatever_other_signal_came_meanwhile(asked: Asking) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGUSR1)
    with pytest.raises(SystemExit):
        os.kill(os.getpid(), signal.SIGTERM)


def test_an_end_that_any_signal_brings_is_carried_out_by_the_training(asked: Asking) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    asked.saved(0.1)
    assert asked.ending


def test_nothing_is_postponed_when_nobody_saves_any_more(asked: Asking) -> None:
    asked.listen(signal.SIGTERM)  # again: still ours is in front once
    asked.close()
    assert signal.getsignal(signal.SIGUSR1) is ends
    with pytest.raises(SystemExit):
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_handler_that_came_after_ours_stays(asked: Asking) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    asked.close()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_a_wish_of_the_service_is_heard_once() -> None:
    asking = Asking(every_s=3600)
    asking.hear(client.Word(save="the node goes bad"))
    assert (asking.due(None), asking.now) == (True, "the node goes bad")
    asking.saved(0.1)
    asking.hear(client.Word(save="the node goes bad", alarms=(client.Alarm(1, "x"),)))
    assert not asking.due(None)
    asking.hear(client.Word())
    asking.hear(client.Word(save="the node goes bad"))
    assert asking.due(None)


def test_sigterm_also_says_that_the_end_is_near() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        asking = Asking(every_s=3600)
        asking.listen(signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert (asking.due(None), asking.ending) == (True, True)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_interval_follows_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    asking = Asking(between_failures_s=8 * 3600.0)
    clock[0] += 299
    assert not asking.due(None)
    clock[0] += 2
    assert asking.due(None)  # the first comes early, to measure what one costs
    asking.saved(1.0)
    assert asking.plan(None).seconds == pytest.approx((2 * 8 * 3600) ** 0.5, rel=0.02)
    assert asking.plan(900.0).seconds == 900
    clock[0] += 200
    assert not asking.due(None)
    clock[0] += 50
    assert asking.due(None)


def test_the_interval_follows_the_history_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    asking, fixed = Asking(), Asking(between_failures_s=3600.0)
    for one in (asking, fixed):
        one.saved(1.0)
        one.hear(client.Word(between_failures_s=7200.0))
    assert asking.plan(None).seconds == pytest.approx((2 * 7200) ** 0.5, rel=0.02)
    assert fixed.plan(None).seconds == pytest.approx((2 * 3600) ** 0.5, rel=0.02)
    asking.hear(client.Word(between_failures_s=72000.0))  # it changes while the training runs
    assert asking.plan(None).seconds == pytest.approx((2 * 72000) ** 0.5, rel=0.02)


def test_ranks_ask_each_other_seldom_if_that_takes_long() -> None:
    asking = Asking()
    assert asking.steps_between_looks(0.01) == 1
    for _ in range(5):
        asking.pace.step(0.1, writing=False)
    assert asking.steps_between_looks(0.00005) == 1
    assert asking.steps_between_looks(0.0005) == 5
    assert asking.steps_between_looks(10.0) == 10  # at least once in a second
