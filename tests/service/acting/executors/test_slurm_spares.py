"""A spare stands in for each isolated node, once, and goes back: also if somebody is killed between two steps.

That slurmctld does with a reservation what this one does is for ``test_slurm_nodes`` to show.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from service.acting.executors.executor import Order, Outcome, Problem
from service.acting.executors.slurm import Node, Slurm
from service.acting.executors.slurm_spares import Spares
from tests.service.acting.executors.test_slurm_orders import KEY, Controller, Killed

OTHER = "f" * 32
ISOLATE = Order(KEY, "isolate", nodes=("gpu-1",), why="Xid 79")
RELEASE = Order("e" * 32, "release", nodes=("gpu-1",))


class Site(Controller):
    """A controller with a reservation."""

    def __init__(self, *spares: str) -> None:
        super().__init__()
        self.reservations = {"spares": spares}
        self.comments = {"gpu-1": "ask Ann"}
        self.busy: set[str] = set()
        self.refuses: Problem | None = None
        """every change of the reservation"""

    async def node(self, name: str) -> Node | None:
        found = await super().node(name)
        assert found is not None
        return found if name not in self.busy else Node(name, found.states - {"IDLE"} | {"ALLOCATED"}, found.reason)

    async def resume(self, name: str) -> None:
        del self.reasons[name]
        await super().resume(name)

    async def reserved(self, reservation: str) -> tuple[str, ...] | None:
        await asyncio.sleep(0)  # others come between
        return self.reservations.get(reservation)

    async def reserve(self, reservation: str, nodes: tuple[str, ...]) -> None:
        assert nodes, "slurmctld chooses others in the place of none"
        await asyncio.sleep(0)
        if self.refuses is not None:
            raise self.refuses
        if self.busy & set(nodes) - set(self.reservations[reservation]):
            raise Problem("Requested nodes are busy", may_retry=True)
        self.reservations[reservation] = nodes
        self._did("reserve")

    async def may_reserve(self) -> None:
        if self.refuses is not None:
            raise self.refuses

    async def unused(self, name: str) -> bool:
        return name not in self.busy and name not in self.reasons

    async def comment_of(self, name: str) -> str:
        return self.comments.get(name, "")

    async def comment_on(self, name: str, comment: str) -> None:
        self.comments[name] = comment
        self._did("comment")

    @property
    def spares(self) -> tuple[str, ...]:
        return self.reservations["spares"]


def executor(site: Site) -> Slurm:
    return Slurm([site], Spares("spares", site))


def carry_out(site: Site, order: Order, by: Slurm | None = None) -> Outcome:
    return asyncio.run((by or executor(site)).carry_out(order))


def test_a_spare_stands_in_for_an_isolated_node_until_that_is_given_back() -> None:
    site = Site("gpu-8", "gpu-9")

    isolated, again, another = (
        carry_out(site, order) for order in (ISOLATE, ISOLATE, Order(OTHER, "isolate", nodes=("gpu-1",)))
    )
    taken, said = site.spares, site.comments["gpu-1"]
    released, once_more = carry_out(site, RELEASE), carry_out(site, RELEASE)

    assert isolated.what == "drained gpu-1; took gpu-8 out of spares for it"
    assert again.what == "gpu-1 was drained by this order; gpu-8 stands in for gpu-1 already"
    assert another.state == "succeeded"
    assert (taken, said) == (("gpu-9",), f"ask Ann; diagnose {KEY} spare gpu-8 of spares")
    assert (released.what, released.may_retry) == ("resumed gpu-1; handed gpu-8 back to spares", False)
    assert once_more.what == "gpu-1 is in service already"
    assert (sorted(site.spares), site.comments["gpu-1"]) == (["gpu-8", "gpu-9"], "ask Ann")


@pytest.mark.parametrize("deeds", [1, 2, 3])
@pytest.mark.parametrize(
    "after", [Killed(), Problem("slurmctld is slow", state="unknown", may_retry=True)], ids=["killed", "lost"]
)
def test_cut_off_after_any_deed_of_an_isolation_one_spare_is_taken(deeds: int, after: Exception) -> None:
    site = Site("gpu-7", "gpu-8", "gpu-9")
    site.after = deeds, after
    with contextlib.suppress(Killed):
        carry_out(site, ISOLATE)

    outcome = carry_out(site, ISOLATE)

    assert outcome.state == "succeeded"
    assert (site.spares, site.comments["gpu-1"]) == (("gpu-8", "gpu-9"), f"ask Ann; diagnose {KEY} spare gpu-7 of spares")


@pytest.mark.parametrize("spares", [("gpu-8", "gpu-9"), ("gpu-8",)], ids=["one-of-two", "the-last"])
@pytest.mark.parametrize("deeds", [1, 2, 3])
@pytest.mark.parametrize(
    "after", [Killed(), Problem("slurmctld is slow", state="unknown", may_retry=True)], ids=["killed", "lost"]
)
def test_cut_off_after_any_deed_of_a_release_the_spare_is_back(spares: tuple[str, ...], deeds: int, after: Exception) -> None:
    site = Site(*spares)
    carry_out(site, ISOLATE)
    site.after = len(site.done) + deeds, after
    with contextlib.suppress(Killed):
        carry_out(site, RELEASE)

    outcome = carry_out(site, RELEASE)

    assert outcome.state == "succeeded"
    assert (sorted(site.spares), site.comments["gpu-1"], site.reasons) == ([*spares], "ask Ann", {})


def test_a_release_before_the_spare_was_taken_leaves_the_reservation_alone() -> None:
    site = Site("gpu-8", "gpu-9")
    site.after = 2, Killed()  # marked
    with pytest.raises(Killed):
        carry_out(site, ISOLATE)

    assert carry_out(site, RELEASE).what == "resumed gpu-1; gpu-8 is in spares"
    assert (site.spares, site.comments["gpu-1"]) == (("gpu-8", "gpu-9"), "ask Ann")


def test_what_was_chosen_before_a_cut_off_and_is_in_use_since_is_chosen_anew() -> None:
    site = Site("gpu-8", "gpu-9")
    site.after = 2, Killed()
    with pytest.raises(Killed):
        carry_out(site, ISOLATE)
    site.busy.add("gpu-8")

    carry_out(site, ISOLATE)

    assert (site.spares, site.comments["gpu-1"]) == (("gpu-8",), f"ask Ann; diagnose {KEY} spare gpu-9 of spares")


def test_the_isolated_node_takes_the_place_of_the_last_spare() -> None:
    site = Site("gpu-9")

    carry_out(site, ISOLATE)
    between = site.spares
    carry_out(site, RELEASE)

    assert (between, site.spares) == (("gpu-1",), ("gpu-9",))


@pytest.mark.parametrize(
    ("spares", "busy", "said"),
    [
        pytest.param(None, (), "no spare for gpu-1: Slurm knows no reservation spares", id="no-reservation"),
        pytest.param((), (), "no spare for gpu-1: no node in spares is idle", id="empty"),
        pytest.param(("gpu-9",), ("gpu-9",), "no spare for gpu-1: no node in spares is idle", id="all-in-use"),
        pytest.param(("gpu-9", "gpu-1"), (), "no spare for gpu-1: it is one of spares itself", id="itself-a-spare"),
    ],
)
def test_without_a_spare_the_node_is_isolated_all_the_same(
    spares: tuple[str, ...] | None, busy: tuple[str, ...], said: str
) -> None:
    site = Site()
    site.reservations = {"spares": spares} if spares is not None else {}
    site.busy.update(busy)

    outcome = carry_out(site, ISOLATE)

    assert (outcome.state, outcome.may_retry, outcome.what) == ("succeeded", False, f"drained gpu-1; {said}")
    assert (site.done, site.comments["gpu-1"]) == (["drain gpu-1"], "ask Ann")


def test_a_refusal_of_slurm_undoes_no_isolation() -> None:
    site = Site("gpu-8", "gpu-9")
    site.refuses = Problem("Invalid user id")

    outcome = carry_out(site, ISOLATE)

    assert (outcome.state, outcome.what) == ("succeeded", "drained gpu-1; no spare for gpu-1: Invalid user id")
    assert site.comments["gpu-1"] == "ask Ann"  # else its release would hand back what another node has by then


def test_nodes_that_the_order_speaks_against_are_no_spares() -> None:
    site = Site("gpu-7", "gpu-8", "gpu-9")
    site.state = "FAILED"

    carry_out(site, Order(KEY, "isolate_and_restart", "7", 1, nodes=("gpu-1",), avoid=("gpu-7",)))

    assert (site.spares, site.restarts) == (("gpu-7", "gpu-9"), 1)


def test_what_others_have_drained_gets_no_spare() -> None:
    site = Site("gpu-8", "gpu-9")
    site.reasons["gpu-1"] = "fan change"

    carry_out(site, ISOLATE)

    assert (site.spares, site.done) == (("gpu-8", "gpu-9"), [])


def test_two_orders_at_once_take_two_spares() -> None:
    site = Site("gpu-7", "gpu-8", "gpu-9")

    async def both() -> None:
        by = executor(site)
        await asyncio.gather(by.carry_out(ISOLATE), by.carry_out(Order(OTHER, "isolate", nodes=("gpu-2",))))

    asyncio.run(both())

    assert site.spares == ("gpu-9",)
    assert {site.comments[node].rpartition("spare ")[2] for node in ("gpu-1", "gpu-2")} == {
        "gpu-7 of spares",
        "gpu-8 of spares",
    }


def test_a_spare_in_use_is_waited_for_and_the_release_has_succeeded() -> None:
    site = Site("gpu-8", "gpu-9")
    by = executor(site)
    carry_out(site, ISOLATE, by)
    site.busy.add("gpu-8")

    released = carry_out(site, RELEASE, by)
    site.busy.clear()
    later = carry_out(site, RELEASE, by)

    assert (released.state, released.may_retry) == ("succeeded", True)
    assert released.what == "resumed gpu-1; gpu-8 is not back in spares yet: Requested nodes are busy"
    assert (later.state, later.may_retry) == ("succeeded", False)
    assert (site.spares, site.comments["gpu-1"]) == (("gpu-9", "gpu-8"), "ask Ann")


def test_a_node_that_is_isolated_again_while_its_spare_is_in_use_stays_isolated_and_keeps_it() -> None:
    site = Site("gpu-8", "gpu-9")
    by = executor(site)
    carry_out(site, ISOLATE, by)
    site.busy.add("gpu-8")
    carry_out(site, RELEASE, by)
    carry_out(site, Order(OTHER, "isolate", nodes=("gpu-1",)), by)
    site.busy.clear()

    later = carry_out(site, RELEASE, by)

    assert (later.state, later.may_retry) == ("succeeded", False)
    assert later.what == "gpu-1 was given back, and was taken out again since"
    assert ([*site.reasons], site.spares) == (["gpu-1"], ("gpu-9",))


def test_where_the_reservation_is_gone_the_release_succeeds_and_forgets_the_spare() -> None:
    site = Site("gpu-8", "gpu-9")
    carry_out(site, ISOLATE)
    site.reservations.clear()

    outcome = carry_out(site, RELEASE)

    assert (outcome.state, outcome.may_retry) == ("succeeded", False)
    assert outcome.what == "resumed gpu-1; gpu-8 stays in use: Slurm knows no reservation spares any more"
    assert site.comments["gpu-1"] == "ask Ann"


@pytest.mark.parametrize(
    "mark",
    ["diagnose x spare --all of spares", "diagnose x spare gpu-8 of a=b", "diagnose x spare gpu-8"],
    ids=["no-node", "no-reservation", "half"],
)
def test_a_mark_that_is_none_hands_nothing_back(mark: str) -> None:
    site = Site("gpu-9")
    site.comments["gpu-1"] = mark

    outcome = carry_out(site, RELEASE)

    assert (outcome.state, site.spares, site.done) == ("succeeded", ("gpu-9",), [])


def test_a_dry_run_says_what_would_become_of_spares() -> None:
    site = Site("gpu-8", "gpu-9")
    isolated = asyncio.run(executor(site).carry_out(ISOLATE, dry_run=True))
    carry_out(site, ISOLATE)
    done = [*site.done]
    released = asyncio.run(executor(site).carry_out(RELEASE, dry_run=True))

    assert isolated.what == "would have: drained gpu-1; took gpu-8 out of spares for it"
    assert released.what == "would have: resumed gpu-1; handed gpu-8 back to spares"
    assert (site.done, done) == (["drain gpu-1", "comment", "reserve"], site.done)


def test_check_says_what_spares_lack() -> None:
    site = Site("gpu-9")
    assert asyncio.run(executor(site).check()) == []
    site.refuses = Problem("no spare could be taken: Invalid user id")
    assert asyncio.run(executor(site).check()) == ["no spare could be taken: Invalid user id"]
    site.reservations.clear()
    (problem,) = asyncio.run(executor(site).check())
    assert problem.startswith(
        "Slurm knows no reservation spares for spares: scontrol create reservation ReservationName=spares "
    )
