"""Lines of one statement are one group; a word is a value only if there is evidence for it."""

from __future__ import annotations

import random

import pytest

from diagnose.compression.templates import Templates

NAMES = ["anna", "berta", "carla", "dora", "emma", "frieda"]


def groups_of(lines: list[str]) -> list[bytes]:
    templates = Templates()
    keys = [templates.add(line.encode()) for line in lines]
    groups = templates.groups()
    return [groups[key] for key in keys]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("block blk_12 is gone", "block blk_-6952295868487656571 is gone"),
        ("from 10.0.0.1 () at Sun Jul 10 03:55:15 2005", "from 10.0.0.2 at Mon Aug  1 13:55:15 2005"),
        ("mask 0x1f", "mask 12"),
        ("mask ffffffff", "mask 40008"),
        ("BSSID changed to c4:b3:01:bd:b5:2e", "BSSID changed to 5c:50:15:4c:18:13"),
        ("address fe80::c6b3:1ff:fecd:467f", "address 2607:f140:6000:8:c6b3:1ff:fecd:467f"),
        ("bus 0000:3b:00.0 is up", "bus 0000:d8:00.0 is up"),
        ("reached node41.example.com", "reached ip-10-0-3-4.example.net"),
        ("at 10.1.2.3,10.1.2.4 now", "at 10.1.2.3 now"),
        ("channel is 132,+1", "channel is 1"),
        ("  0%|          | 0/10", " 40%|████      | 4/10"),
        ("session for user root ended", "session for user news ended"),
        ("took (5)", "took 7 "),
    ],
)
def test_lines_of_one_statement(one: str, other: str) -> None:
    first, second = groups_of([one, other])
    assert first == second


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('10.0.0.1 "GET /v2/a HTTP/1.1" status: 200', '10.0.0.1 "POST /v2/a HTTP/1.1" status: 200'),
        ("channel 3 [send]", "channel 3 [receive]"),
        ("loss:0.5", "norm:0.5"),
        ("session opened for user root", "session closed for user root"),
        ("std::a::b::c::d", "std::a::b::c::e"),
        ("march of 10 men", "may of 10 men"),
    ],
)
def test_lines_of_two_statements(one: str, other: str) -> None:
    first, second = groups_of([one, other] * 100)[:2]
    assert first != second


def test_how_many_values_are_evidence_depends_on_how_much_the_line_says() -> None:
    words = ["alpha", "beta", "gamma", "delta", "omega", "sigma", "kappa", "theta", "iota", "zeta"]
    for line, needed in (("opened vault {}", 5), ("opened {}", 10)):
        lines = [line.format(word) for word in words]
        assert len(set(groups_of(lines[: needed - 1]))) == needed - 1
        assert len(set(groups_of(lines[:needed]))) == 1


def test_a_word_of_many_values_is_one_and_one_of_few_is_not() -> None:
    assert len(set(groups_of([f"loaded shard of {name} from the store" for name in NAMES]))) == 1
    assert len(set(groups_of([f"loaded shard of {name} from the store" for name in NAMES[:3]] * 50))) == 3


def test_where_values_stand_a_word_is_one() -> None:
    lines = [f"synchronized to 10.0.0.{n}, stratum 2" for n in range(6)]
    assert len(set(groups_of([*lines, "synchronized to LOCAL(0), stratum 9"]))) == 1


def test_two_words_that_vary_at_once() -> None:
    pairs = [(one, other) for one in NAMES for other in NAMES]
    assert len(set(groups_of([f"Model {one} {other} size" for one, other in [*pairs, ("gerda", "hanna")]]))) == 1


def test_single_words_are_no_values_of_each_other() -> None:
    assert len(set(groups_of([f"{name} 7" for name in NAMES]))) == len(NAMES)


def test_groups_do_not_depend_on_the_order() -> None:
    lines = [f"{verb} shard {n} of {name} at {n}.5 GB/s" for verb in ("read", "wrote") for name in NAMES for n in range(3)]
    expected = dict(zip(lines, groups_of(lines), strict=True))
    random.Random(0).shuffle(lines)
    assert dict(zip(lines, groups_of(lines), strict=True)) == expected


def test_the_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diagnose.compression.templates._MOST_KEYS", 50)
    templates = Templates()
    templates.add(b"it came twice", 2)
    letters = "abcdefghijklmnopqrst"
    for one in letters:
        for other in letters:
            templates.add(f"only {one} and {other}".encode())
    groups = templates.groups()
    assert len(groups) <= 50
    assert b"it came twice" in groups
