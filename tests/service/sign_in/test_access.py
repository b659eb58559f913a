"""The file of ``--sign-in``: each mistake is one sentence with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.errors import DiagnoseError
from service.sign_in import access

PEOPLE = "people:\n  issuer: https://login.example.org\n  client_id: diagnose\n"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("- x\n", None, "lets nobody in"),
        ("person: {}\n", 1, "no such clause"),
        (PEOPLE, 2, "lets nobody in"),
        (PEOPLE + "  allow: []\n", 4, "lets nobody in"),
        (PEOPLE + "  allow:\n    - {group: g}\n", 5, "role: is missing"),
        (PEOPLE + "  allow:\n    - {role: read}\n", 5, "says nobody"),
        (PEOPLE + "  allow:\n    - {group: '', role: read}\n", 5, "group: is missing"),
        (PEOPLE + "  allow:\n    - {group: g, role: ingest}\n", 5, "cannot be the role here"),
        (PEOPLE + "  allow:\n    - {group: g, role: read, users: [x]}\n", 5, "no such option"),
        (PEOPLE + "  allow:\n    - {group: g, role: read, projects: ['a~b']}\n", 5, "not the name of a project"),
        (PEOPLE + "  secret: x\n  allow:\n    - {group: g, role: read}\n", 4, "secrets do not belong in this file"),
        (PEOPLE + "  session: 90d\n  allow:\n    - {group: g, role: read}\n", 4, "longer than 30 days"),
        (PEOPLE.replace("https", "http") + "  allow:\n    - {group: g, role: read}\n", 2, "over plain http"),
        ("accounts:\n  - {issuer: 'https://k', audience: a, allow: [{account: x, role: ingest}]}\n", 2, "is no account"),
        ("accounts:\n  - {issuer: 'https://k', allow: [{account: a/b, role: ingest}]}\n", 2, "audience: is missing"),
        ("accounts:\n  - {issuer: 'https://k', audience: a, allow: [{account: a/b, role: node}]}\n", 2, "for no node"),
        (
            "accounts:\n  - {issuer: 'https://k', audience: a, keys: 'http://k', allow: [{account: a/b, role: read}]}\n",
            2,
            "http",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, line: int | None, said: str) -> None:
    path = tmp_path / "sign-in.yaml"
    path.write_text(text)
    with pytest.raises(DiagnoseError) as refused:
        access.load(path)
    assert said in refused.value.what
    assert refused.value.where == (f"{path}:{line}" if line else str(path))
    assert refused.value.remedy
