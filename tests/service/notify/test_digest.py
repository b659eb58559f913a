"""The digest of a shift: what it says, to whom, and that text of a log does nothing in it."""

from __future__ import annotations

import email
import email.policy
import json
from pathlib import Path
from typing import Any

import pytest

from service.notify import digest
from service.notify.messages import cloudevent, slack
from service.store.pages.shift import Shift
from service.store.pages.totals import Cost, Figures
from tests.conftest import Run
from tests.support.receivers import Receiver

HOSTILE = "\x1b[31mNCCL Ä <!channel>\r\nBcc: all@example.org\n.\n\u202e"


def action(**changes: Any) -> dict[str, Any]:
    known = {
        "id": 7, "kind": "isolate_and_restart", "nodes": ["gpu-1"], "job": "train", "attempt": 2, "state": "succeeded",
        "decided_by": "policy", "aftermath": None, "why": HOSTILE, "created": 1.7e9 - 7200,
    }  # fmt: skip
    return known | changes


def shift(**changes: Any) -> Shift:
    after = {"attempt": 3, "passed": True, "failed_at_step": 1200.0, "state": "running", "reason": None}
    done = [
        action(aftermath=after),
        action(decided_by="kim", aftermath={**after, "passed": False, "state": "failed_alike"}),
    ]
    known: dict[str, Any] = {
        "figures": Figures(5, 3, 7200.0, 0.0, 1, 2, 0, 1, 10, 1),
        "done": done,
        "decided": [*done, action(decided_by="kim", state="rejected")],
        "fresh": [{"id": 4, "title": HOSTILE, "count": 2, "regressed": True}],
        "costs": [Cost("infrastructure", "nccl_timeout", 4, 7200.0)],
        "waits": [action(state="proposed", decided_by=None)],
    }
    return Shift(**known | changes)


def test_it_says_what_failed_what_was_done_by_whom_what_came_of_it_and_what_waits() -> None:
    said = digest.lines(shift(), 1.7e9 - 43200, 1.7e9, "https://logs.example.org/")
    for expected in (
        "From 2023-11-14 10:13 to 2023-11-14 22:13 UTC",
        "WHAT FAILED: 5 attempts (3 in the time before), 2 GPU hours lost",
        "  nccl timeout (infrastructure): 4 times, 2 GPU hours",
        "WHAT WAS DONE: 1 by the policy, 1 by people, 1 rejected; 1 right, 1 in vain, 0 failed in another way, 0 not known yet",
        "  - isolate and restart gpu-1 of train, attempt 2, by policy: succeeded; attempt 3 got past step 1,200"
        "  https://logs.example.org/ui/actions/7",
        "  - isolate and restart gpu-1 of train, attempt 2, by kim: succeeded; attempt 3 failed in the same way"
        "  https://logs.example.org/ui/actions/7",
        "WHAT WAITS FOR A YES: 1",
        "All of it: https://logs.example.org/ui/shift",
    ):
        assert expected in said
    assert any(line.startswith("  - isolate and restart gpu-1 of train, attempt 2, for 2 h: ") for line in said)
    assert any(line.startswith("  - back after it was resolved: ") for line in said)


def test_text_of_a_log_begins_no_line_and_no_header() -> None:
    said = digest.lines(shift(), 1.7e9 - 43200, 1.7e9, None)
    assert all(line.isprintable() for line in said)
    text = digest.mail(shift(), 1.7e9 - 43200, 1.7e9, None, "ops@example.org")
    assert "NCCL Ä" in text
    message = email.message_from_bytes(text.encode(), policy=email.policy.default)
    assert (message["To"], message["Bcc"]) == ("ops@example.org", None)
    assert message["Subject"] == "diagnose: 5 failures, 2 done, 1 waits for a yes"
    assert "." not in message.get_content().splitlines()


def test_a_webhook_gets_the_text_and_the_numbers() -> None:
    notice = digest.notice(shift(), 1.7e9 - 43200, 1.7e9, "https://logs.example.org")
    data = json.loads(cloudevent(notice)[1])["data"]
    assert (data["failures"], data["automatic"], data["by_people"], data["right"], data["vain"]) == (5, 1, 1, 1, 1)
    text = json.loads(slack(notice)[1])["text"]
    assert "<!channel>" not in text
    assert text.endswith("<https://logs.example.org/ui/shift>")
    assert len(text.splitlines()) == len(data["lines"]) + 2


@pytest.mark.parametrize(("after", "said"), [
    (None, "no next attempt yet"),
    ({"attempt": 3, "passed": None, "failed_at_step": None, "state": "running", "reason": None}, "attempt 3 runs"),
    ({"attempt": 3, "passed": False, "failed_at_step": 5.0, "state": "failed_otherwise", "reason": "ecc_error"},
     "attempt 3 failed of ecc error"),
    ({"attempt": 3, "passed": None, "failed_at_step": None, "state": "healthy", "reason": None}, "attempt 3 ended: healthy"),
])  # fmt: skip
def test_what_came_of_it(after: dict[str, Any] | None, said: str) -> None:
    assert digest.came_of(after) == said


@pytest.mark.slow
def test_the_command_prints_and_sends(diagnose: Run, tmp_path: Path) -> None:
    place = ["--data", str(tmp_path / "data")]
    printed = diagnose("digest", *place, "--since", "12h")
    assert "WHAT FAILED: 0 attempts" in printed.stdout
    assert "Subject: diagnose: 0 failures" in diagnose("digest", *place, "--mail", "ops@example.org").stdout
    receiver = Receiver()
    try:
        reach = ["--webhooks-to", "127.0.0.0/8"]
        added = diagnose("webhooks", "add", receiver.url, "--format", "slack", *place, *reach)
        number = added.stdout.split()[0]
        assert diagnose("digest", "--webhook", number, *place, *reach).stdout == "HTTP 204\n"
        ((_, headers, body),) = receiver.wait(1)
        assert headers["webhook-id"].startswith("msg_digest.")
        assert "WHAT WAITS FOR A YES: 0" in json.loads(body)["text"]
    finally:
        receiver.close()
    wrong = diagnose("digest", "--webhook", "99", *place)
    assert wrong.returncode != 0
    assert "no such webhook" in wrong.stderr
