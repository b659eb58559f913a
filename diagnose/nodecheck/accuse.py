"""Which node is bad: who tests with whom, and what the results mean. Nothing is run here.

Round one tests pairs (and one triple, if the number is odd). All nodes of a group that passes are good. Round two puts each
suspect with a node that was proven good. So an innocent node is cleared, and a bad one fails again. Three promises:

- Nobody is blamed for a neighbour. A node is faulty only if it failed at least twice with nodes that pass with others, never
  passed since, and shared one of these tests only with nodes that passed a *later* test: they were good then, so it was not.
  What it did beside a dead node says nothing.
- All sets of faults with at least two good nodes are told apart. With fewer good nodes no pair can pass, all such sets look
  alike, and every node is a suspect. An example are two nodes of which one is bad.
- Slow counts like failed: a group is slow if it took far longer than the median of the same test.

- A group that failed once although its members pass elsewhere is tested once more. If it fails again, it is the link between
  them; else a fault that came and went, and the verdict says so.

Most checks end in round two. If both nodes of a pair fail twice, a third round follows: the nodes that passed with others must
pass once more. With fewer than six nodes these are their only partners, so a fourth round tests the pair's nodes again. If no
group passes at all, other pairings are tried until one does.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from diagnose.errors import DiagnoseError

SLOW_FACTOR = 1.5
_SLACK_S = 0.005
"""smaller differences are noise, whatever their ratio"""
SILENT = "no answer when its partner had failed"
"""for a node that was ended because the test could not pass any more"""

Group = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """One group's test in one round."""

    members: Group
    passed: bool
    compute_s: Mapping[str, float] = field(default_factory=dict)
    """node -> time of its own matmul"""
    gather_s: float | None = None
    """the group's time for the all-gather"""
    seen: Mapping[str, str] = field(default_factory=dict)
    """node -> what it said, or that it said nothing"""


Rounds = Sequence[Sequence[Trial]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the rounds so far. Every node is in exactly one of good, faulty, slow and suspects."""

    good: list[str]
    faulty: list[str]
    slow: list[str]
    suspects: list[str]
    """neither proven good nor proven bad"""
    links: list[Group]
    """groups that failed or were slow although each member passed elsewhere: the network between them, or a passing fault"""
    why: dict[str, str]
    """node -> a sentence, for all that are not good"""
    notes: list[str]
    """what could not be found out, and why"""


def plan(nodes: Sequence[str], rounds: Rounds = (), *, most: int | None = None, factor: float = SLOW_FACTOR) -> list[Group]:
    """The groups that test at the same time in the next round. None if all is known, or after ``most`` rounds."""
    _check(nodes)
    if not rounds:
        return _first(nodes)
    if len(rounds) >= (4 * len(nodes) if most is None else most):
        return []
    state = _State(nodes, rounds, factor)
    return state.retests() or state.search() or state.repeats()


def verdict(nodes: Sequence[str], rounds: Rounds, *, factor: float = SLOW_FACTOR) -> Verdict:
    """Who is good, faulty, slow or a suspect, with reasons."""
    _check(nodes)
    state = _State(nodes, rounds, factor)
    suspects = [node for node in nodes if node in state.open]
    return Verdict(
        good=[node for node in nodes if node in state.good],
        faulty=[node for node in nodes if node in state.bad and not state.only_slow(node)],
        slow=[node for node in nodes if node in state.bad and state.only_slow(node)],
        suspects=suspects,
        links=state.links(),
        why={node: state.why(node) for node in nodes if node not in state.good},
        notes=[*(_notes(nodes, state, suspects) if suspects else []), *_passing(state)],
    )


def _check(nodes: Sequence[str]) -> None:
    if len(nodes) < 2:
        raise DiagnoseError(f"{len(nodes)} node is too few, because nodes are tested in pairs", remedy="name two nodes or more")
    if len(set(nodes)) < len(nodes):
        twice = next(node for node in nodes if nodes.count(node) > 1)
        raise DiagnoseError("the node is named twice", where=twice, remedy="name each node once")


def _notes(nodes: Sequence[str], state: _State, suspects: list[str]) -> list[str]:
    names = ", ".join(suspects)
    if state.search():
        return [f"Not finished: more rounds may tell {names} apart."]
    if len(nodes) == 2:
        return [f"Of two nodes that fail together nobody can say which is bad: test {names} with a third node."]
    if not state.good:
        return ["No two nodes pass together: fewer than two are good, or what they share (network, software) is broken."]
    return [f"Not finished: to be tested again: {names}."]


def _passing(state: _State) -> list[str]:
    """Faults that came and went."""
    return [
        f"{' and '.join(group)} failed together once and passed when they were tested again: one of them may fail now and then."
        for group in state.passing()
    ]


def _first(nodes: Sequence[str]) -> list[Group]:
    """The pairs of round one. Neighbours in a list often share a switch or a rack, so they test together."""
    pairs = [tuple(nodes[at : at + 2]) for at in range(0, len(nodes) - 1, 2)]
    if len(nodes) % 2:
        pairs[-1] = (*pairs[-1], nodes[-1])
    return pairs


class _State:
    """What is known after some rounds."""

    def __init__(self, nodes: Sequence[str], rounds: Rounds, factor: float) -> None:
        self.nodes = nodes
        self.rounds = rounds
        self.limits = _limits([trial for trials in rounds for trial in trials], factor)
        self.tests: dict[str, list[tuple[int, Trial]]] = {node: [] for node in nodes}
        for number, trials in enumerate(rounds):
            for trial in trials:
                for node in trial.members:
                    self.tests[node].append((number, trial))
        self.passed_at = {
            node: max((number for number, trial in tests if self.clean(trial)), default=-1)
            for node, tests in self.tests.items()
        }
        self.bad = {node for node in nodes if self._is_bad(node)}
        self.good = {node for node in nodes if node not in self.bad and self.passed_at[node] >= 0 and not self._doubts(node)}
        self.open = set(nodes) - self.bad - self.good

    def clean(self, trial: Trial) -> bool:
        return trial.passed and not self.slow(trial)

    def slow(self, trial: Trial) -> list[str]:
        """Which measurements of the trial are far above the median."""
        compute, gather = self.limits
        found = [f"{node}'s matmul took {took:.3g} s" for node, took in trial.compute_s.items() if took > compute]
        if trial.gather_s is not None and trial.gather_s / _steps(trial) > gather:
            found.append(f"the all-gather took {trial.gather_s:.3g} s")
        return found if trial.passed else []

    def _failed(self, node: str) -> list[tuple[int, Trial]]:
        """The tests since the node last passed."""
        return [(number, trial) for number, trial in self.tests[node] if number > self.passed_at[node]]

    def _telling(self, node: str) -> list[tuple[int, Trial]]:
        """Of these, the tests with nodes that pass with others. Beside a node that never does, nobody passes."""
        return [
            (number, trial)
            for number, trial in self._failed(node)
            if all(self.passed_at[other] >= 0 for other in trial.members if other != node)
        ]

    def _is_bad(self, node: str) -> bool:
        telling = self._telling(node)
        return len(telling) >= 2 and any(
            all(self.passed_at[other] > number for other in trial.members if other != node) for number, trial in telling
        )

    def _doubts(self, node: str) -> bool:
        """Whether the node passed once and was then in a failure that no bad node explains."""
        return any(self.bad.isdisjoint(trial.members) for _, trial in self._failed(node))

    def retests(self) -> list[Group]:
        """Each suspect with a node that is good."""
        waiting = {node for node in self.open if self._waits(node)}
        return self._retests(self.open - waiting) or self._retests(self.open)

    def _retests(self, due: set[str]) -> list[Group]:
        shaken = [node for node in self.nodes if node in due and self.passed_at[node] >= 0]
        free = [node for node in self.nodes if node in self.good]
        groups: list[Group] = []
        again = shaken
        while len(again) >= 2 and (pair := self._untried(again)):  # they test each other and leave the good nodes to the rest
            groups.append(pair)
            again = [node for node in again if node not in pair]
        for node in again + [node for node in self.nodes if node in due and node not in shaken]:
            if not free:
                break
            groups.append((node, free.pop(0)))
        return groups

    def _waits(self, node: str) -> bool:
        """Whether it failed twice, and is bad if its partner in one of these tests passes once more. Then the partner is
        tested.
        """
        telling = self._telling(node)
        return len(telling) >= 2 and any(
            all(
                self.passed_at[other] > number or (other in self.open and self.passed_at[other] >= 0)
                for other in trial.members
                if other != node
            )
            for number, trial in telling
        )

    def _untried(self, among: Sequence[str]) -> Group | None:
        return next(
            (
                (one, other)
                for at, one in enumerate(among)
                for other in among[at + 1 :]
                if not self._failed_together(one, other)
            ),
            None,
        )

    def _failed_together(self, one: str, other: str) -> bool:
        return any(set(trial.members) == {one, other} and not self.clean(trial) for _, trial in self.tests[one])

    def search(self) -> list[Group]:
        """Without a good node to test with: the round of a tournament with the most pairs that were not tried yet."""
        if not self.open:
            return []
        tournament = [
            [pair for pair in pairs if self.open.issuperset(pair) and not self._failed_together(*pair)]
            for pairs in _tournament(self.nodes)
        ]
        return max(tournament, key=len)

    def links(self) -> list[Group]:
        """Groups that failed, and did not pass when they were tested again, although all of them are good."""
        return [group for group, trials in self._of_good().items() if not self.clean(trials[-1])]

    def passing(self) -> list[Group]:
        """Groups that failed, and passed when they were tested again."""
        return [group for group, trials in self._of_good().items() if self.clean(trials[-1])]

    def repeats(self) -> list[Group]:
        """Groups that failed once, of nodes that are good: at most one test for each node at a time."""
        groups: list[Group] = []
        for group, trials in self._of_good().items():
            if len(trials) == 1 and not any(set(group) & set(other) for other in groups):
                groups.append(group)
        return groups

    def _of_good(self) -> dict[Group, list[Trial]]:
        """The tests of each group of good nodes that failed, from that one on."""
        found: dict[Group, list[Trial]] = {}
        for trials in self.rounds:
            for trial in trials:
                group = tuple(sorted(trial.members))
                if self.good.issuperset(group) and (group in found or not self.clean(trial)):
                    found.setdefault(group, []).append(trial)
        return found

    def only_slow(self, node: str) -> bool:
        """Whether it can pass, and takes too long. Where it failed beside another, that one may have been at fault."""
        return any(trial.passed for _, trial in self._telling(node))

    def why(self, node: str) -> str:
        told = []
        for number, trial in self._failed(node):
            others = " and ".join(other for other in trial.members if other != node)
            what = "slow" if trial.passed else "failed"
            seen = "; ".join(self.slow(trial)) if trial.passed else _words(trial, node)
            told.append(f"round {number + 1}: {what} with {others}{f' ({seen})' if seen else ''}")
        return ", ".join(told) if told else "not tested"


def _words(trial: Trial, node: str) -> str:
    """What the node said. If it was silent, what the nodes that waited for it said."""
    said = trial.seen.get(node, "")
    if said != SILENT:
        return said
    return "; ".join([said, *(f"{other}: {words}" for other, words in trial.seen.items() if words != SILENT)])


def _limits(trials: Sequence[Trial], factor: float) -> tuple[float, float]:
    """(limit for a matmul, limit for a step of an all-gather). What takes longer is slow."""
    passed = [trial for trial in trials if trial.passed]
    return (
        _limit([took for trial in passed for took in trial.compute_s.values()], factor),
        _limit([trial.gather_s / _steps(trial) for trial in passed if trial.gather_s is not None], factor),
    )


def _limit(times: Iterable[float], factor: float) -> float:
    """The lower median times the factor: of two groups, the faster one is the measure."""
    known = sorted(times)
    return max(statistics.median_low(known) * factor, statistics.median_low(known) + _SLACK_S) if known else float("inf")


def _steps(trial: Trial) -> int:
    """A triple moves twice as much through each node as a pair."""
    return len(trial.members) - 1


def _tournament(nodes: Sequence[str]) -> list[list[Group]]:
    """All pairs, in rounds in which each node plays at most once. One node stays, the others rotate. The first round is round
    one.
    """
    circle: list[str | None] = [*nodes[::2], *([None] if len(nodes) % 2 else []), *reversed(nodes[1::2])]
    half = len(circle) // 2
    rounds: list[list[Group]] = []
    for _ in range(len(circle) - 1):
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        rounds.append([(one, other) for one, other in pairs if one is not None and other is not None])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return rounds
