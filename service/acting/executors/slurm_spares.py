"""Slurm's spare nodes: a reservation that the site made holds idle nodes, and one of them stands in for each isolated node.

What survives a crash is a mark in the comment of the isolated node: which spare, of which reservation. It is made before the
spare is taken out, and taken off after the spare is back. So whoever comes next looks whether the spare is still in the
reservation, and does what is left.

Slurm 22.05 sets the list of a reservation's nodes as a whole: it knows no += there. It fills an empty list with nodes of its
own choice, so none is ever sent: the isolated node takes the place of the last spare.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

from service.acting.executors.executor import Problem, mark, node_names

RESERVATION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""the names of reservations that we take"""
_MARK = re.compile(r"diagnose \S{1,32} spare (\S{1,253}) of (\S{1,64})")


class Reserve(Protocol):
    """What of Slurm this needs. Each method raises Problem."""

    async def reserved(self, reservation: str) -> tuple[str, ...] | None:
        """The nodes in a reservation; None if there is no such reservation."""

    async def reserve(self, reservation: str, nodes: tuple[str, ...]) -> None:
        """Set the nodes of a reservation. Slurm refuses nodes with jobs for now, unless the reservation ignores jobs."""

    async def may_reserve(self) -> None:
        """Raise Problem if the user may not change reservations. Changes none."""

    async def unused(self, name: str) -> bool:
        """Whether a node is up, in service and without jobs."""

    async def comment_of(self, name: str) -> str: ...

    async def comment_on(self, name: str, comment: str) -> None: ...


@dataclass(frozen=True, slots=True)
class _Lent:
    """A spare that stands in, or was about to."""

    spare: str
    reservation: str


class Spares:
    """The spare nodes of one executor."""

    def __init__(self, reservation: str, reserve: Reserve) -> None:
        self._reservation, self._reserve = reservation, reserve
        self._one_at_a_time = asyncio.Lock()
        """two orders would take the same spare, and the lists are set as a whole"""

    async def check(self) -> list[str]:
        try:
            if await self._reserve.reserved(self._reservation) is None:
                how = "StartTime=now Duration=UNLIMITED Users=root Flags=IGNORE_JOBS Nodes=LIST"
                make = f"scontrol create reservation ReservationName={self._reservation} {how}"
                return [f"Slurm knows no reservation {self._reservation} for spares: {make}"]
            await self._reserve.may_reserve()
        except Problem as problem:
            return [problem.what]
        return []

    async def swap_in(self, key: str, node: str, others: Collection[str], dry_run: bool) -> str:
        """Let a spare stand in for a node that an order has isolated, and say which. ``others`` are no spares. Never raises: a
        node that is out is out, spare or not.
        """
        try:
            async with self._one_at_a_time:
                return await self._swap_in(key, node, others, dry_run)
        except Problem as problem:
            return f"no spare for {node}: {problem.what}"

    async def _swap_in(self, key: str, node: str, others: Collection[str], dry_run: bool) -> str:
        words = await self._reserve.comment_of(node)
        lent = _lent(words)
        if lent is not None and lent.spare not in (await self._reserve.reserved(lent.reservation) or ()):
            return f"{lent.spare} stands in for {node} already"
        held = await self._reserve.reserved(self._reservation)
        if held is None:
            return f"no spare for {node}: Slurm knows no reservation {self._reservation}"
        if node in held:  # nothing is lost to jobs
            return f"no spare for {node}: it is one of {self._reservation} itself"
        first = (lent.spare,) if lent is not None and lent.spare in held else ()
        spare = await self._unused([one for one in dict.fromkeys((*first, *held)) if one not in others])
        if spare is None:
            return f"no spare for {node}: no node in {self._reservation} is idle"
        if not dry_run:
            now = _Lent(spare, self._reservation)
            if now != lent:
                await self._reserve.comment_on(node, _with(words, f"{mark(key)} spare {spare} of {self._reservation}"))
            try:
                await self._reserve.reserve(self._reservation, tuple(one for one in held if one != spare) or (node,))
            except Problem as problem:
                if problem.state == "failed":  # it was not taken: the next node may have it
                    await self._reserve.comment_on(node, _with(words))
                raise
        return f"took {spare} out of {self._reservation} for it"

    async def _unused(self, names: list[str]) -> str | None:
        for name in names:
            if await self._reserve.unused(name):
                return name
        return None

    async def hand_back(self, node: str, dry_run: bool) -> tuple[str | None, bool]:
        """(what became of the spare of a node that is in service again, whether it may go better later). Never raises."""
        lent = None
        try:
            async with self._one_at_a_time:
                words = await self._reserve.comment_of(node)
                if (lent := _lent(words)) is None:
                    return None, False
                held = await self._reserve.reserved(lent.reservation) or ()
                left = tuple(dict.fromkeys((*(one for one in held if one != node), lent.spare)))
                if not dry_run:
                    if held and left != held:
                        await self._reserve.reserve(lent.reservation, left)
                    await self._reserve.comment_on(node, _with(words))
        except Problem as problem:
            if lent is None:
                return f"whether {node} has a spare is not known: {problem.what}", problem.may_retry
            return f"{lent.spare} is not back in {lent.reservation} yet: {problem.what}", problem.may_retry
        if not held:
            return f"{lent.spare} stays in use: Slurm knows no reservation {lent.reservation} any more", False
        if lent.spare in held:
            return f"{lent.spare} is in {lent.reservation}", False
        return f"handed {lent.spare} back to {lent.reservation}", False


def _lent(comment: str) -> _Lent | None:
    """What a node's comment says. Others can write there too: a name has to be one."""
    found = next(filter(None, map(_MARK.fullmatch, comment.split("; "))), None)
    if found is None or not RESERVATION.fullmatch(found[2]):
        return None
    try:
        (spare,) = node_names((found[1],))
    except Problem:
        return None
    return _Lent(spare, found[2])


def _with(comment: str, *ours: str) -> str:
    """A comment with our mark, or without one. Others' words stay."""
    return "; ".join((*(one for one in comment.split("; ") if one and not _MARK.fullmatch(one)), *ours))
