"""A shift -> its digest: plain text for a mail or a chat, and the notice of a webhook.

What logs and people wrote is put on one line each, without signs that a terminal or a mail program acts on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any, Final

from service.notify.messages import UNSEEN
from service.store.pages.shift import JUDGED, MOST, Shift
from service.store.webhooks import Notice

KIND: Final = "digest"
_LONGEST: Final = 160


def lines(shift: Shift, since: float, now: float, address: str | None) -> list[str]:
    """The digest. ``address``: of the service, for links; None leaves them out."""
    ui = f"{address.rstrip('/')}/ui/" if address else None
    found = [
        f"From {_moment(since)} to {_moment(now)} UTC",
        "",
        *_failed(shift, ui),
        "",
        *_done(shift, ui),
        "",
        *_waits(shift, now, ui),
    ]
    return [*found, "", f"All of it: {ui}shift"] if ui else found


def subject(shift: Shift) -> str:
    """The digest in one line."""
    waits = shift.figures.waiting
    return (
        f"diagnose: {_count(shift.figures.failures, 'failure')}, {_done_count(shift)} done, "
        f"{waits:,} {'waits' if waits == 1 else 'wait'} for a yes"
    )


def mail(shift: Shift, since: float, now: float, address: str | None, to: str) -> str:
    """A message that ``sendmail -t`` takes."""
    message = EmailMessage()
    message["To"], message["Subject"] = to, subject(shift)
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n".join(lines(shift, since, now, address)) + "\n", cte="8bit")
    return message.as_bytes().decode()  # as a string it would be base64, which nobody can read in a terminal


def notice(shift: Shift, since: float, now: float, address: str | None) -> Notice:
    """The digest for a webhook: the text, and the numbers for programs."""
    data = {
        "since": since,
        "until": now,
        "summary": subject(shift),
        "lines": lines(shift, since, now, None),
        "url": f"{address.rstrip('/')}/ui/shift" if address else None,
        "failures": shift.figures.failures,
        "failures_before": shift.figures.before,
        "gpu_hours_lost": shift.figures.gpu_seconds / 3600,
        "waiting": shift.figures.waiting,
        **shift.verdicts,
    }
    return Notice(f"digest.{int(now * 1000)}", KIND, now, KIND, data)


def _failed(shift: Shift, ui: str | None) -> Iterator[str]:
    figures = shift.figures
    before = "no job is known from the time before" if figures.before is None else f"{figures.before:,} in the time before"
    yield (f"WHAT FAILED: {_count(figures.failures, 'attempt')} ({before}), {figures.gpu_seconds / 3600:,.0f} GPU hours lost")
    for cost in shift.costs:
        yield f"  {_words(cost.reason)} ({cost.category}): {_times(cost.count)}, {cost.gpu_seconds / 3600:,.0f} GPU hours"
    if shift.fresh:
        yield f"  New, or back: {_more(len(shift.fresh))}"
    for group in shift.fresh:
        back = "back after it was resolved: " if group["regressed"] else ""
        yield f"  - {back}{_one(group['title'])}, {_times(group['count'])}{_link(ui, 'failures', group['id'])}"


def _done(shift: Shift, ui: str | None) -> Iterator[str]:
    how = shift.verdicts
    yield (
        f"WHAT WAS DONE: {how['automatic']:,} by the policy, {how['by_people']:,} by people, {how['rejected']:,} rejected; "
        f"{how['right']:,} right, {how['vain']:,} in vain, {how['other']:,} failed in another way, "
        f"{how['open'] + how['none']:,} not known yet" + ("" if len(shift.decided) < JUDGED else f" (the latest {JUDGED:,})")
    )
    if len(shift.done) == MOST < len(shift.decided):
        yield f"  The latest {MOST}:"
    for action in shift.done:
        who = _one(action["decided_by"] or "policy")
        then = f"; {came_of(action['aftermath'])}" if action["job"] and action["state"] != "rejected" else ""
        yield f"  - {_act(action)}, by {who}: {action['state']}{then}{_link(ui, 'actions', action['id'])}"


def _waits(shift: Shift, now: float, ui: str | None) -> Iterator[str]:
    yield f"WHAT WAITS FOR A YES: {shift.figures.waiting:,}"
    for action in shift.waits:
        waited = max(0.0, now - action["created"])
        how_long = f"{waited / 3600:,.0f} h" if waited >= 3600 else f"{waited / 60:.0f} min"
        yield f"  - {_act(action)}, for {how_long}: {_one(action['why'] or '')}{_link(ui, 'actions', action['id'])}"


def came_of(after: dict[str, Any] | None) -> str:
    """What came of an action: how the next attempt goes."""
    if after is None:
        return "no next attempt yet"
    attempt = f"attempt {after['attempt']}"
    if after["passed"]:
        return f"{attempt} got past step {after['failed_at_step']:,.0f}"
    reason = f" of {_words(after['reason'])}" if after.get("reason") else ""
    known = {"running": "runs", "failed_alike": "failed in the same way", "failed_otherwise": f"failed{reason}"}
    return f"{attempt} {known.get(after['state']) or 'ended: ' + _words(after['state'])}"


def _act(action: dict[str, Any]) -> str:
    nodes: Sequence[str] = action["nodes"] or ()
    on = f" {', '.join(map(_one, nodes[:3]))}" + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "") if nodes else ""
    of = f" of {_one(action['job'])}, attempt {action['attempt']}" if action["job"] else ""
    return f"{_words(action['kind'])}{on}{of}"


def _done_count(shift: Shift) -> str:
    count = shift.verdicts["automatic"] + shift.verdicts["by_people"]
    return f"{count:,}" if len(shift.decided) < JUDGED else f"{count:,} or more"


def _more(count: int) -> str:
    return f"{count:,}" if count < MOST else f"the {MOST} most expensive"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _words(name: object) -> str:
    return _one(name).replace("_", " ")


def _one(text: object) -> str:
    """One line, not too long, of what can be printed."""
    plain = UNSEEN.sub(" ", str(text)).encode("utf-8", "replace").decode()
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 2]} …"


def _link(ui: str | None, page: str, number: int) -> str:
    return f"  {ui}{page}/{number}" if ui else ""


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
