"""Secrets of all kinds go, in the dresses of logs, and lines that only look like them stay."""

from benchmarks.redaction import KINDS, harmless, secrets
from diagnose.redaction.text import redact


def test_secrets_go() -> None:
    made = list(secrets(seed=11, per_kind=3))
    left = [text for _, text, secret in made if secret in redact(text).text]
    assert len(KINDS) >= 40
    assert len(left) <= 0.02 * len(made), left


def test_harmless_lines_stay() -> None:
    lines = list(harmless(2000, seed=11))
    changed = [line for line in lines if redact(line).text != line]
    assert len(changed) <= 0.001 * len(lines), changed
