"""The life of an action: each step, and whatever two deciders and three executors with bad clocks make of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from diagnose.decision import action as life
from diagnose.decision.action import ENDED, Record, Refused, admit, key_of
from diagnose.decision.policy_file import shipped_policy
from tests.conftest import examples

SPANS = shipped_policy().life
T = 1_800_000_000.0


def record(mode: Any = "approve", **changes: Any) -> Record:
    return replace(life.propose("k", "job", 1, "restart", mode, T, SPANS), **changes)


def running(at: float = T) -> Record:
    return life.start(life.claim(record("auto"), "r1", at, SPANS), 1, at, SPANS)


def test_from_the_proposal_to_the_end() -> None:
    states = [one := record()]
    for step in (
        lambda r: life.approve(r, "ann", T + 1, SPANS),
        lambda r: life.claim(r, "r1", T + 2, SPANS),
        lambda r: life.start(r, 1, T + 3, SPANS),
        lambda r: life.renew(r, 1, T + 60, SPANS),
        lambda r: life.finish(r, 1, True, "requeued", T + 90, SPANS),
    ):
        states.append(one := step(one))
    assert [r.state for r in states] == ["proposed", "approved", "dispatched", "running", "running", "succeeded"]
    assert (one.decided_by, one.claimed_by, one.result, one.late) == ("ann", "r1", "requeued", False)


@pytest.mark.parametrize(
    ("given", "step", "said"),
    [
        pytest.param(record("observe"), lambda r: life.approve(r, "ann", T, SPANS), "only observes", id="observed"),
        pytest.param(record(), lambda r: life.claim(r, "r1", T, SPANS), "is proposed and cannot be claimed", id="no-yes-yet"),
        pytest.param(record(state="rejected"), lambda r: life.approve(r, "ann", T, SPANS), "is rejected", id="a-no-stands"),
        pytest.param(running(), lambda r: life.reject(r, "ann", "no", T, SPANS), "is running", id="too-late-for-a-no"),
        pytest.param(running(), lambda r: life.claim(r, "r2", T, SPANS), "is running", id="taken"),
        pytest.param(running(), lambda r: life.renew(r, 7, T, SPANS), "fence 7", id="not-his-lease"),
        pytest.param(running(), lambda r: life.finish(r, 7, True, "", T, SPANS), "never given out", id="a-fence-of-his-own"),
        pytest.param(running(), lambda r: life.finish(r, 0, True, "", T, SPANS), "never given out", id="no-fence"),
        pytest.param(record("auto", not_before=T + 9), lambda r: life.claim(r, "r1", T, SPANS), "again in 9 s", id="back-off"),
        pytest.param(record(), lambda r: life.approve(r, "ann", T + 1e6, SPANS), "is expired", id="a-yes-that-comes-too-late"),
    ],
)
def test_what_may_not_happen(given: Record, step: Callable[[Record], Record], said: str) -> None:
    with pytest.raises(Refused, match=said) as caught:
        step(given)
    assert caught.value.remedy


def test_what_is_said_twice_changes_nothing() -> None:
    approved = life.approve(record(), "ann", T, SPANS)
    assert life.approve(approved, "bob", T + 1, SPANS) is approved
    assert life.start(running(), 1, T + 1, SPANS).state == "running"
    done = life.finish(running(), 1, True, "ok", T + 1, SPANS)
    assert life.finish(done, 1, True, "ok", T + 2, SPANS) is done
    rejected = life.reject(record(), "ann", "no", T, SPANS)
    assert life.reject(rejected, "bob", "no", T + 1, SPANS) is rejected


def test_a_lease_that_lapses_before_the_start_is_handed_out_anew_a_few_times() -> None:
    one, now = record("auto"), T
    for fence in range(1, SPANS.claims + 1):
        one = life.claim(one, f"r{fence}", now, SPANS)
        assert one.fence == fence
        now += SPANS.lease_s
        one = life.tick(one, now, SPANS)
    assert (one.state, one.result) == ("expired", f"taken {SPANS.claims} times, never begun")


def test_whoever_lost_the_lease_may_not_start() -> None:
    taken = life.claim(record("auto"), "r1", T, SPANS)
    again = life.claim(taken, "r2", T + SPANS.lease_s, SPANS)
    with pytest.raises(Refused):
        life.start(again, 1, T + SPANS.lease_s, SPANS)
    assert life.start(again, 2, T + SPANS.lease_s, SPANS).state == "running"


def test_what_began_and_went_silent_is_not_done_again() -> None:
    silent = life.tick(running(), T + SPANS.lease_s, SPANS)
    assert (silent.state, silent.result) == ("expired", "r1 began and was not heard of again")
    with pytest.raises(Refused):
        life.claim(silent, "r2", T + SPANS.lease_s, SPANS)


def test_who_took_it_goes_on_after_a_crash_under_a_new_fence() -> None:
    for at in (T + 1, T + SPANS.lease_s + 1):  # also where its lease lapsed, and nobody has noticed
        again = life.resume(running(), "r1", at, SPANS)
        assert (again.state, again.fence, again.lease_until) == ("running", 2, at + SPANS.lease_s)
        former = life.finish(again, 1, True, "done", at, SPANS)
        assert (former.state, len(former.notes)) == ("running", 1)
        assert life.finish(again, 2, True, "done", at, SPANS).state == "succeeded"
    taken = life.claim(record("auto"), "r1", T, SPANS)
    again = life.resume(taken, "r1", T + 1, SPANS)
    assert (again.state, again.fence, again.claims) == ("dispatched", 2, 1)
    with pytest.raises(Refused):
        life.start(again, 1, T + 2, SPANS)


@pytest.mark.parametrize(
    ("given", "who", "at"),
    [
        pytest.param(running(), "r2", T + 1, id="another"),
        pytest.param(record("auto"), "r1", T + 1, id="not-taken"),
        pytest.param(life.finish(running(), 1, True, "ok", T, SPANS), "r1", T + 1, id="over"),
        pytest.param(life.tick(running(), T + 1e4, SPANS), "r1", T + 1e4, id="given-up"),
        pytest.param(running(), "r1", T + SPANS.lease_s + SPANS.start_within_s, id="days-later"),
    ],
)
def test_who_may_not_go_on(given: Record, who: str, at: float) -> None:
    with pytest.raises(Refused):
        life.resume(given, who, at, SPANS)


def late_claimed() -> Record:
    return life.claim(life.claim(record("auto"), "r1", T, SPANS), "r2", T + SPANS.lease_s, SPANS)


@pytest.mark.parametrize(
    ("given", "fence", "succeeded", "state", "late", "notes"),
    [
        pytest.param(life.tick(running(), T + 1e4, SPANS), 1, True, "succeeded", True, 0, id="after-an-expiry"),
        pytest.param(life.tick(running(), T + 1e4, SPANS), 1, False, "failed", True, 0, id="a-failure-after-an-expiry"),
        pytest.param(late_claimed(), 1, True, "succeeded", True, 1, id="done-before-the-next-began"),
        pytest.param(late_claimed(), 1, False, "dispatched", False, 2, id="not-done-and-the-next-has-it"),
        pytest.param(life.start(late_claimed(), 2, T + 121, SPANS), 1, True, "running", False, 2, id="the-next-has-begun"),
        pytest.param(life.finish(running(), 1, True, "ok", T, SPANS), 1, False, "succeeded", False, 1, id="an-end-stands"),
    ],
)
def test_late_results(given: Record, fence: int, succeeded: bool, state: str, late: bool, notes: int) -> None:
    after = life.finish(given, fence, succeeded, "said", given.changed + 1, SPANS)
    assert (after.state, after.late, len(after.notes)) == (state, late, notes)


def test_a_clock_that_is_set_back_does_not_hold_a_lease_for_long() -> None:
    one = life.claim(record("auto"), "r1", T, SPANS)
    one = life.tick(replace(one, lease_until=T + 7200), T + 1, SPANS)
    assert one.lease_until == T + 1 + SPANS.lease_s
    assert life.tick(one, T - 5000, SPANS).changed == one.changed


@pytest.mark.parametrize(
    ("existing", "verdict", "withdraw"),
    [
        pytest.param([], "insert", (), id="the-first"),
        pytest.param([record(key="a")], "same", (), id="the-same-again"),
        pytest.param([record(key="b")], "replace", ("b",), id="another-that-nobody-took"),
        pytest.param([replace(running(), key="b")], "refuse", (), id="another-under-way"),
        pytest.param([replace(running(), key="b", state="succeeded")], "refuse", (), id="another-that-was-done"),
        pytest.param([record(key="b", state="rejected", decided_by="ann")], "refuse", (), id="a-person-said-no"),
        pytest.param([record(key="b", state="rejected", decided_by="decision")], "insert", (), id="one-that-was-withdrawn"),
        pytest.param([record(key="b", state="expired")], "insert", (), id="one-that-nobody-ever-took"),
        pytest.param([record(key="b", state="expired", fence=1)], "refuse", (), id="one-that-may-have-been-done"),
    ],
)
def test_two_deciders(existing: list[Record], verdict: str, withdraw: tuple[str, ...]) -> None:
    found = admit("a", existing, "restart")
    assert (found.verdict, found.withdraw) == (verdict, withdraw)


def test_who_says_no_to_a_hold_has_not_said_no_to_a_restart() -> None:
    existing = [record(key="b", kind="hold", state="rejected", decided_by="ann")]
    assert [admit("a", existing, kind).verdict for kind in ("restart", "hold")] == ["insert", "refuse"]


@pytest.mark.parametrize(
    ("other", "same"),
    [
        pytest.param(("job", 1, "g", "restart", ["b", "a", "a"]), True, id="the-order-of-nodes-does-not-matter"),
        pytest.param(("job", 2, "g", "restart", ["a", "b"]), False, id="another-attempt"),
        pytest.param(("job", 1, None, "restart", ["a", "b"]), False, id="another-group"),
        pytest.param(("job", 1, "g", "retry_later", ["a", "b"]), False, id="another-kind"),
        pytest.param(("job", 1, "g", "restart", ["a,b"]), False, id="names-do-not-run-together"),
        pytest.param(("job", 1, "g", "restart", []), False, id="no-nodes"),
    ],
)
def test_the_key(other: tuple[Any, ...], same: bool) -> None:
    assert (key_of(*other) == key_of("job", 1, "g", "restart", ["a", "b"])) == same


class Life(RuleBasedStateMachine):
    """Deciders that propose for one attempt, executors that take, begin, vanish and report, clocks that jump."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.now = T
        self.store: dict[str, Record] = {}
        self.effects: list[tuple[str, int]] = []
        """what an executor really did to the cluster"""
        self.seen: dict[str, Record] = {}
        self.looks: set[tuple[str, int]] = set()
        """leases of executors that came back after a crash: they look before they act"""

    @initialize()
    def begin(self) -> None:
        self.decide("restart", "auto")

    @rule(kind=st.sampled_from(["restart", "retry_later", "isolate_and_restart"]), mode=st.sampled_from(["auto", "approve"]))
    def decide(self, kind: str, mode: Any) -> None:
        key = key_of("job", 1, "g", kind, [])
        found = admit(key, list(self.store.values()), kind)
        if found.verdict in ("insert", "replace"):
            for other in found.withdraw:
                self.store[other] = life.withdraw(self.store[other], "another decision", self.now, SPANS)
            self.store[key] = life.propose(key, "job", 1, kind, mode, self.now, SPANS)

    @rule(seconds=st.sampled_from([1.0, 30.0, 119.0, 121.0, 3600.0, 50000.0, -30.0, -7200.0]))
    def clock(self, seconds: float) -> None:
        self.now += seconds
        for key, one in self.store.items():
            self.store[key] = life.tick(one, self.now, SPANS)

    @rule(yes=st.booleans())
    def person(self, yes: bool) -> None:
        for key in self.store:
            self.change(
                key, lambda r: life.approve(r, "ann", self.now, SPANS) if yes else life.reject(r, "ann", "no", self.now, SPANS)
            )

    @rule(target=leases, who=st.sampled_from(["r1", "r2", "r3"]))
    def claim(self, who: str) -> tuple[str, int] | None:
        for key in self.store:
            if self.change(key, lambda r: life.claim(r, who, self.now, SPANS)):
                return key, self.store[key].fence
        return None

    @rule(lease=leases, answered=st.booleans())
    def start_and_act(self, lease: tuple[str, int] | None, answered: bool) -> None:
        """The executor acts only if it is told that it may, and once: the answer may be lost, and asked for again."""
        if lease is None or lease in self.effects:
            return
        if lease in self.looks and any(key == lease[0] for key, _ in self.effects):
            answered = False  # it finds that it is done
        if self.change(lease[0], lambda r: life.start(r, lease[1], self.now, SPANS)) and answered:
            self.effects.append(lease)

    @rule(target=leases, who=st.sampled_from(["r1", "r2", "r3"]))
    def crash_and_come_back(self, who: str) -> tuple[str, int] | None:
        for key in self.store:
            if self.change(key, lambda r: life.resume(r, who, self.now, SPANS)):
                self.looks.add((key, self.store[key].fence))
                return key, self.store[key].fence
        return None

    @rule(lease=leases)
    def renew(self, lease: tuple[str, int] | None) -> None:
        if lease is not None:
            self.change(lease[0], lambda r: life.renew(r, lease[1], self.now, SPANS))

    @rule(lease=leases, succeeded=st.booleans())
    def report(self, lease: tuple[str, int] | None, succeeded: bool) -> None:
        if lease is not None:
            self.change(lease[0], lambda r: life.finish(r, lease[1], succeeded, "said", self.now, SPANS))

    def change(self, key: str, step: Callable[[Record], Record]) -> bool:
        try:
            self.store[key] = step(self.store[key])
        except Refused:
            return False
        return True

    @invariant()
    def nothing_is_done_twice(self) -> None:
        assert len(self.effects) <= 1

    @invariant()
    def one_is_under_way_at_most(self) -> None:
        assert sum(one.state in ("approved", "dispatched", "running") for one in self.store.values()) <= 1

    @invariant()
    def fences_and_times_only_grow_and_ends_stand(self) -> None:
        for key, one in self.store.items():
            before = self.seen.get(key)
            if before is not None and before.created == one.created:
                assert one.fence >= before.fence
                assert one.changed >= before.changed
                if before.state in ENDED - {"expired"}:
                    assert one.state == before.state
                if before.state == "expired":
                    assert one.state in ("expired", "succeeded", "failed")
                if before.state == "running":
                    assert one.state not in ("proposed", "approved", "dispatched")
            self.seen[key] = one


Life.TestCase.settings = settings(max_examples=examples(75), stateful_step_count=30, deadline=None)
TestLife = Life.TestCase
