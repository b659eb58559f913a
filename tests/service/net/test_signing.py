"""Signatures of what we send, checked with the library that receivers use."""

from __future__ import annotations

import time

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from diagnose.errors import DiagnoseError
from service.net.signing import headers, key_of, new_secret, verified

BODY = '{"text": "\u202eÄ <b>"}'.encode()


def test_the_library_of_the_standard_takes_our_signature_and_we_take_its() -> None:
    secret, now = new_secret(), time.time()
    given = headers(secret, "msg_1", now, BODY)
    assert Webhook(secret).verify(BODY, given) == {"text": "\u202eÄ <b>"}
    assert verified(secret, given, BODY, now)


@pytest.mark.parametrize("change", ["body", "id", "time", "secret"])
def test_whatever_is_changed_is_noticed(change: str) -> None:
    secret, now = new_secret(), time.time()
    given = headers(secret, "msg_1", now, BODY)
    body = BODY + b" " if change == "body" else BODY
    if change == "id":
        given["webhook-id"] = "msg_2"
    if change == "time":
        given["webhook-timestamp"] = str(int(now) + 1)
    other = new_secret() if change == "secret" else secret
    assert not verified(other, given, body, now)
    with pytest.raises(WebhookVerificationError):
        Webhook(other).verify(body, given)


@pytest.mark.parametrize("stamp", ["", "x", "-1", "1e9", "٣", "9" * 30])
def test_garbage_for_a_time_is_no_signature(stamp: str) -> None:
    secret, now = new_secret(), time.time()
    assert not verified(secret, {**headers(secret, "m", now, BODY), "webhook-timestamp": stamp}, BODY, now)


def test_an_old_delivery_is_not_taken_again() -> None:
    secret, now = new_secret(), time.time()
    assert not verified(secret, headers(secret, "m", now - 301, BODY), BODY, now)


def test_a_second_signature_beside_ours_does_not_matter() -> None:
    """While a secret is exchanged for another one, both sign."""
    secret, now = new_secret(), time.time()
    given = headers(secret, "m", now, BODY)
    assert verified(secret, {**given, "webhook-signature": f"v1,ü {given['webhook-signature']}"}, BODY, now)


@pytest.mark.parametrize("secret", ["", "x", "whsec_", "whsec_!!!", "whsec_" + "QQ==", "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"])
def test_what_is_no_secret_is_refused(secret: str) -> None:
    with pytest.raises(DiagnoseError, match="cannot be used to sign"):
        key_of(secret)
