"""What a node check found: the verdict of ``diagnose nodes check``, as what is stored and decided about."""

from __future__ import annotations

from diagnose.agent.redaction import redact
from diagnose.history import CheckResult
from service.api.shapes import CheckVerdict
from service.batch import storable
from service.errors import Refused
from service.store.nodechecks import Check, Checked

_LONGEST = 2000


def check_of(verdict: CheckVerdict, now: float) -> Check:
    """The verdict, node by node. A clock that goes ahead is not believed: what is to come clears nobody."""
    links: dict[str, list[str]] = {}
    for link in verdict.links:
        for one in link:
            links.setdefault(one, []).extend(other for other in link if other != one)
    found: dict[str, Checked] = {}
    lists: tuple[tuple[CheckResult, list[str]], ...] = (
        ("good", verdict.good),
        ("faulty", verdict.faulty),
        ("slow", verdict.slow),
        ("suspect", verdict.suspects),
    )
    for result, nodes in lists:
        for node in nodes:
            storable(node, "node")
            if node in found:
                raise Refused("it is named twice", where=node, remedy="send the verdict as `diagnose nodes check` prints it")
            why = verdict.why.get(node)
            if why is None and node in links:
                others = ", ".join(sorted(set(links[node]))[:8])
                why = f"passed, but not together with {others}: look at the way between"
            found[node] = Checked(node, result, _storable_words(why))
    if not found:
        raise Refused("no node was tested", where="verdict", remedy="send the line whose kind is verdict")
    return Check(min(verdict.time if verdict.time is not None else now, now), tuple(found.values()), verdict.rounds)


def _storable_words(text: str | None) -> str | None:
    """What a broken node said, as far as a database holds it: better with a mark than not at all."""
    if text is None:
        return None
    return redact(text[:_LONGEST].replace("\0", "\ufffd")).text
