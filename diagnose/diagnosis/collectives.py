"""Flight recorders of several ranks -> which collective stands still, who waits in it, and who has not come.

A rank that waits in one collective is often late for another for that reason. So the search is for a rank that is waited for
and waits for nobody. The chain begins there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from diagnose.reading.dumps.flight_recorder import Collective, FlightRecord

_P2P = re.compile(r"\b(?P<way>send|recv) (?P<one>\d+)(?:->|<-)(?P<other>\d+)")
_SAME_SIZES = re.compile(r"all_?reduce|broadcast|_all_gather_base|_reduce_scatter_base|\breduce\b")
"""collectives in which all ranks bring tensors of one size"""


@dataclass(slots=True)
class Standing:
    """A collective, or a message between two ranks, that does not end."""

    group: str
    description: str
    members: tuple[int, ...]
    number: int
    op: str
    sizes: str
    waiting: list[int]
    late: list[int]
    """members whose own recorders show that they have not come to it"""
    unseen: list[int]
    """members without a recorder's dump"""
    behind: list[int] = field(default_factory=list)
    """members that have put it on their queues, but whose devices have not finished what others finished long ago"""
    differing: dict[str, list[int]] = field(default_factory=dict)
    """what they brought -> the ranks that brought it, if these differ and should not"""
    p2p: bool = False
    first: Collective | None = None
    """the collective as one of the waiting ranks has it"""
    place: int = 0
    """how many were open before it on that rank"""

    @property
    def name(self) -> str:
        """``ALLREDUCE #1204 of group 0``."""
        op = re.sub(r"^\w+:|^_|_base$", "", self.op)
        words = op.upper().replace("_", "") if not self.p2p else op
        # Groups are named by numbers or hashes that mean nothing to people. The description is a word.
        of = f"group {self.group}" if len(self.group) <= 12 else "a group"
        said = f" ({self.description})" if self.description and self.description not in ("undefined", "None") else ""
        return f"{words} #{self.number} of {of}{said}"


def standing(records: Mapping[int, FlightRecord]) -> list[Standing]:
    """What does not end; the one where the chain begins comes first."""
    members = _members(records)
    found = [one for group in members for one in _in_group(group, members[group], records)]
    behind = {rank for one in found for rank in one.behind}
    found += _messages(members, records, behind)
    waits_for: dict[int, set[int]] = defaultdict(set)
    for one in found:
        for rank in one.waiting:
            waits_for[rank].update(one.late, one.behind, one.unseen)
    free = behind | {rank for one in found for rank in one.late if not waits_for[rank]}
    for one in found:
        if set(one.late) & free:
            one.late = [rank for rank in one.late if rank in free]

    def order(one: Standing) -> tuple[bool, bool, bool, int, int]:
        begins = bool(one.behind or set(one.late) & free)
        return (not begins, one.p2p, not one.differing, -len(one.waiting), one.place)

    found.sort(key=order)
    return found


def first_late(found: Sequence[Standing]) -> tuple[list[int], list[int]]:
    """With whom the chain begins: (ranks that have not come, ranks whose device is behind the others)."""
    if not found:
        return [], []
    began = [one for one in found if (one.late or one.behind) and (not one.p2p or found[0].p2p)]
    waiting = {rank for one in found if not one.p2p for rank in one.waiting}
    late = {rank for one in began for rank in one.late}
    free = {rank for rank in late if rank not in waiting}
    behind = {rank for one in began for rank in one.behind}
    return sorted(free - behind or ({*found[0].late} - behind if not behind else set())), sorted(behind)


def _members(records: Mapping[int, FlightRecord]) -> dict[str, tuple[int, ...]]:
    """group -> its ranks: the longest list that a rank has, else the ranks that know the group."""
    said: dict[str, tuple[int, ...]] = {}
    seen: dict[str, set[int]] = defaultdict(set)
    for rank, record in records.items():
        for group in record.groups.values():
            seen[group.name].add(rank)
            if len(group.ranks) > len(said.get(group.name, ())):
                said[group.name] = group.ranks
    return {name: said.get(name) or tuple(sorted(ranks)) for name, ranks in seen.items()}


def _in_group(name: str, members: tuple[int, ...], records: Mapping[int, FlightRecord]) -> list[Standing]:
    inside = [rank for rank in members if rank in records]
    first: dict[int, Collective] = {}
    for rank in inside:
        mine = [one for one in records[rank].open if one.group == name and not one.p2p]
        if mine:
            first[rank] = min(mine, key=lambda one: one.number)
    if not first:
        return []
    # If the device of a rank hangs, a collective that others have ended stays open on it.
    number = max(one.number for one in first.values())
    behind = [rank for rank, one in first.items() if one.number < number and _others_ended(records, first, name, rank)]
    if not behind:
        number = min(one.number for one in first.values())
    waiting = [rank for rank, one in first.items() if one.number == number]
    late = [rank for rank in inside if rank not in first and not _came(records[rank], name, number)]
    shown = first[waiting[0]]
    one = Standing(
        name,
        _described(name, records),
        members,
        number,
        shown.op,
        shown.sizes,
        waiting,
        late,
        [rank for rank in members if rank not in records],
        behind,
        first=shown,
        place=records[waiting[0]].open.index(shown),
    )
    one.differing = _differing({rank: first[rank] for rank in waiting})
    return [one]


def _others_ended(records: Mapping[int, FlightRecord], first: Mapping[int, Collective], group: str, rank: int) -> bool:
    """Whether most of those that wait in the group have ended the collective that is open on this rank."""
    number = first[rank].number
    ended = 0
    for other in first:
        known = records[other].groups.get(group)
        ended += known is not None and known.completed is not None and known.completed >= number
    return 2 * ended >= len(first)


def _came(record: FlightRecord, group: str, number: int) -> bool:
    known = record.groups.get(group)
    return known is not None and known.recorded is not None and known.recorded >= number


def _described(name: str, records: Mapping[int, FlightRecord]) -> str:
    said = (record.groups[name].description for record in records.values() if name in record.groups)
    return next((text.split(",")[0] for text in said if text), "")


def _differing(brought: Mapping[int, Collective]) -> dict[str, list[int]]:
    """What the ranks brought to one collective, if they should have brought the same and did not."""
    ops: dict[str, list[int]] = defaultdict(list)
    for rank, one in brought.items():
        ops[one.op].append(rank)
    if len(ops) > 1:
        return dict(ops)
    sizes: dict[str, list[int]] = defaultdict(list)
    for rank, one in brought.items():
        sizes[one.sizes].append(rank)
    (op,) = ops
    return dict(sizes) if len(sizes) > 1 and _SAME_SIZES.search(op) else {}


def _messages(members: Mapping[str, tuple[int, ...]], records: Mapping[int, FlightRecord], behind: set[int]) -> list[Standing]:
    """Messages that one rank waits for, and whose other end has not begun its part."""
    parts: dict[tuple[str, str, int, int], list[int]] = defaultdict(list)
    shown: dict[tuple[str, str, int, int], Collective] = {}
    for rank, record in records.items():
        for one in record.open if rank not in behind else ():
            if not one.p2p or (found := _P2P.search(one.op)) is None:
                continue
            ranks = members.get(one.group, ())
            mine, other = int(found["one"]), int(found["other"])
            if mine < len(ranks) and other < len(ranks) and ranks[mine] == rank:
                key = one.group, found["way"], rank, ranks[other]
                parts[key].append(one.number)
                shown.setdefault(key, one)
    met = {"send": "recv", "recv": "send"}
    return [
        Standing(
            group,
            _described(group, records),
            members[group],
            shown[key].number,
            shown[key].op,
            shown[key].sizes,
            [rank],
            [other] if other in records else [],
            [] if other in records else [other],
            p2p=True,
            first=shown[key],
        )
        for key in parts
        for group, way, rank, other in [key]
        if (group, met[way], other, rank) not in parts
    ]
