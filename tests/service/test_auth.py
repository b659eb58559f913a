"""Who comes in with what, how much they may send, and when the service may be reached by others at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from diagnose.errors import DiagnoseError
from service.auth import OWNER, Tokens, Who, check_exposure, check_runs_the_cluster, holder, needs, sender
from service.errors import BadName, Busy, Forbidden, Unauthorised, Unavailable
from service.projects import EVERYTHING, NOBODY, Grant
from service.settings import Settings
from service.store import Store, tokens
from tests.support.live import Hands, store_in

RIGHTS = ("ingest", "read", "operate", "admin")
MAY = {
    "ingest": {"ingest"},
    "read": {"read"},
    "operate": {"read", "operate"},
    "admin": {"ingest", "read", "operate", "admin"},
}
OTHERS = "0.0.0.0"


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def database(tmp_path: Path) -> Any:
    made = store_in(tmp_path)
    yield made
    made.close()


def create(database: Store, name: str = "kim", role: str = "ingest", **more: Any) -> str:
    return database.write(lambda connection: tokens.create(connection, name, role, **more))


def loaded(database: Store, hands: Hands, host: str = OTHERS, **settings: Any) -> Tokens:
    made = Tokens(database, Settings(host=host, **settings), hands.clock)
    asyncio.run(made.refresh())
    return made


@pytest.mark.parametrize("role", MAY)
def test_a_token_gives_its_name_the_rights_of_its_role_and_its_quota(database: Store, hands: Hands, role: str) -> None:
    secret = create(database, role=role, quota=12)
    grant = EVERYTHING if role == "admin" else NOBODY
    projects = None if role == "admin" else ("default",)
    assert loaded(database, hands).who(f"Bearer {secret}") == Who("kim", frozenset(MAY[role]), 12, grant, projects=projects)


@pytest.mark.parametrize("form", ["bearer {}", "BEARER {}", "Bearer  {} "], ids=["lower", "upper", "spaces"])
def test_the_scheme_may_be_written_in_any_case_and_with_spaces(database: Store, hands: Hands, form: str) -> None:
    secret = create(database)
    assert loaded(database, hands).who(form.format(secret)).name == "kim"


@pytest.mark.parametrize(
    "form",
    [None, "", "Bearer", "Bearer ", "{}", "Basic {}", "Bearer: {}"],
    ids=["nothing", "empty", "scheme", "scheme-and-space", "secret-alone", "basic", "colon"],
)
def test_who_shows_no_token_is_told_how(database: Store, hands: Hands, form: str | None) -> None:
    secret = create(database)
    with pytest.raises(Unauthorised, match="a token is needed") as refused:
        loaded(database, hands).who(form.format(secret) if form is not None else None)
    assert "Authorization: Bearer" in str(refused.value.remedy)


@pytest.mark.parametrize("change", [lambda s: s[:-1], lambda s: s + "x", lambda s: s.upper(), lambda s: "dgn_" + "A" * 43])
def test_a_secret_that_is_nearly_right_is_wrong(database: Store, hands: Hands, change: Any) -> None:
    secret = create(database)
    with pytest.raises(Unauthorised, match="not valid"):
        loaded(database, hands).who(f"Bearer {change(secret)}")


def test_the_hash_of_a_token_is_no_token(database: Store, hands: Hands) -> None:
    secret = create(database)
    with pytest.raises(Unauthorised, match="not valid"):
        loaded(database, hands).who(f"Bearer {tokens.hash_of(secret)}")


def test_a_token_is_valid_until_it_expires_by_the_time_of_day(database: Store, hands: Hands) -> None:
    secret = create(database, expires=hands.clock.now() + 10)
    known = loaded(database, hands)
    hands.passed = 9.5
    assert known.who(f"Bearer {secret}").name == "kim"
    hands.passed = 10
    with pytest.raises(Unauthorised, match="not valid"):
        known.who(f"Bearer {secret}")
    hands.passed, hands.set_by = 0, 11  # the clock on the wall was set
    with pytest.raises(Unauthorised, match="not valid"):
        known.who(f"Bearer {secret}")


def test_a_token_that_is_revoked_counts_until_the_tokens_are_read_anew(database: Store, hands: Hands) -> None:
    secret, other = create(database), create(database, "lee")
    known = loaded(database, hands)
    database.write(lambda connection: tokens.revoke(connection, "kim"))
    assert known.who(f"Bearer {secret}").name == "kim"
    asyncio.run(known.refresh())
    with pytest.raises(Unauthorised, match="not valid"):
        known.who(f"Bearer {secret}")
    assert known.who(f"Bearer {other}").name == "lee"


# --- tokens that were made since


class Asked:
    """A real store, which counts what it is asked, and waits where a test says so."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.questions = 0
        self.away = False
        self.held = 0
        """so many answers are held back until ``told``"""
        self.told, self.read = asyncio.Event(), asyncio.Event()

    async def aread(self, work: Any) -> Any:
        self.questions += 1
        if self.away:
            raise Unavailable("the database does not answer", remedy="try again")
        found = await self._store.aread(work)
        self.read.set()
        if self.held:
            self.held -= 1
            await self.told.wait()
        return found


async def come(known: Tokens, secret: str) -> str | None:
    """The name of the token, or None where it is refused."""
    await known.meet(f"Bearer {secret}")
    try:
        return known.who(f"Bearer {secret}").name
    except Unauthorised:
        return None


def newcomers(database: Store, hands: Hands, play: Callable[[Asked, Tokens], Coroutine[Any, Any, None]]) -> None:
    """Play this on a service that knows one token and has just read its tokens."""

    async def main() -> None:
        asked = Asked(database)
        known = Tokens(asked, Settings(host=OTHERS), hands.clock)  # type: ignore[arg-type]
        create(database, "first")
        await known.refresh()
        asked.questions = 0
        asked.read.clear()
        await play(asked, known)

    asyncio.run(main())


def test_a_token_that_was_just_made_counts_at_once(database: Store, hands: Hands) -> None:
    async def play(asked: Asked, known: Tokens) -> None:
        secret, gone = create(database, role="read"), create(database, "gone")
        database.write(lambda connection: tokens.revoke(connection, "gone"))
        assert await asyncio.gather(*(come(known, secret) for _ in range(50))) == ["kim"] * 50
        assert known.holds(known.who(f"Bearer {secret}"))
        assert asked.questions == 1, "the fifty wait for the same answer"
        assert await come(known, gone) is None
        assert await come(known, gone) is None
        assert asked.questions == 2

    newcomers(database, hands, play)


def test_what_is_no_token_of_ours_is_never_asked_for(database: Store, hands: Hands) -> None:
    async def play(asked: Asked, known: Tokens) -> None:
        secret = create(database)
        for wrong in ("", "x", secret[:-1], secret + "x", secret.removeprefix("dgn_"), "dgs_" + secret[4:], "e" * 47):
            assert await come(known, wrong) is None
        await known.meet(None)
        await known.meet(f"Basic {secret}")
        assert asked.questions == 0

    newcomers(database, hands, play)


def test_wrong_tokens_cost_one_question_each_and_few_in_a_second(
    database: Store, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(asked: Asked, known: Tokens) -> None:
        for _ in range(100):
            assert await come(known, "dgn_" + "w" * 43) is None
        assert asked.questions == 1
        for number in range(1000):
            assert await come(known, f"dgn_{number:043}") is None
        assert asked.questions == 20, "the questions of two seconds"
        secret = create(database)
        assert await come(known, secret) is None, "beyond them it counts when the tokens are read again"
        hands.passed = 0.2
        assert await come(known, secret) == "kim"
        for number in range(5000, 5100):
            hands.passed += 0.1
            await known.meet(f"Bearer dgn_{number:043}")
        assert len(known._wrong) == 50, "nor do they fill the memory"

    monkeypatch.setattr("service.auth._MOST_WRONG", 50)
    newcomers(database, hands, play)


def test_what_strangers_ask_for_at_once_is_bounded(database: Store, hands: Hands) -> None:
    async def play(asked: Asked, known: Tokens) -> None:
        asked.held = 100
        waiting = [asyncio.create_task(come(known, f"dgn_{number:043}")) for number in range(100)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 96, "they are refused without a wait"
        asked.told.set()
        assert set(await asyncio.gather(*waiting)) == {None}
        assert asked.questions == 4

    newcomers(database, hands, play)


def test_while_the_database_is_away_nothing_is_known_of_a_token(database: Store, hands: Hands) -> None:
    async def play(asked: Asked, known: Tokens) -> None:
        secret = create(database)
        asked.away = True
        assert await come(known, secret) is None
        asked.away = False
        assert await come(known, secret) == "kim"

    newcomers(database, hands, play)


def test_a_token_that_is_revoked_while_it_is_asked_for_is_not_brought_back(database: Store, hands: Hands) -> None:
    async def play(asked: Asked, known: Tokens) -> None:
        secret = create(database)
        asked.held = 1
        coming = asyncio.create_task(come(known, secret))
        await asked.read.wait()  # as a valid one
        database.write(lambda connection: tokens.revoke(connection, "kim"))
        again = asyncio.create_task(known.refresh())
        await asyncio.wait({again}, timeout=0.2)
        asked.told.set()
        await asyncio.gather(coming, again)
        assert await come(known, secret) is None

    newcomers(database, hands, play)


# --- with no token


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_with_no_token_this_machine_may_do_all(database: Store, hands: Hands, host: str) -> None:
    known = loaded(database, hands, host)
    assert known.open
    for shown in (None, "Bearer anything"):
        found = known.who(shown)
        assert (found.name, set(found.may), found.quota, found.anybody) == ("local", set(RIGHTS), None, True)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "127.0.0.1.example.org"])
def test_with_no_token_nobody_comes_in_where_others_reach_us(database: Store, hands: Hands, host: str) -> None:
    known = loaded(database, hands, host)
    assert not known.open
    with pytest.raises(Unauthorised):
        known.who(None)


def test_until_the_tokens_were_read_nobody_comes_in(database: Store, hands: Hands) -> None:
    secret = create(database)
    unread = Tokens(database, Settings(host="127.0.0.1"), hands.clock)
    assert not unread.open
    for shown in (None, f"Bearer {secret}"):
        with pytest.raises(Unauthorised):
            unread.who(shown)


def test_with_one_token_this_machine_needs_it_too(database: Store, hands: Hands) -> None:
    create(database)
    known = loaded(database, hands, "127.0.0.1")
    assert not known.open
    with pytest.raises(Unauthorised):
        known.who(None)


# --- rights


def request(known: Tokens, authorization: str | None) -> Any:
    """What of a request is looked at."""
    headers = {"authorization": authorization} if authorization is not None else {}
    service = SimpleNamespace(tokens=known)
    return SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(service=service)), headers=headers, scope={})


@pytest.mark.parametrize("right", RIGHTS)
@pytest.mark.parametrize("role", MAY)
def test_only_who_has_the_right_comes_in(database: Store, hands: Hands, role: str, right: str) -> None:
    asked = request(loaded(database, hands), f"Bearer {create(database, role=role)}")
    asyncio.run(asked.app.state.service.tokens.refresh())
    if right in MAY[role]:
        assert asyncio.run(holder(asked, right)).name == "kim"
        assert asyncio.run(needs(right)(asked)).name == "kim"
        return
    for ask in (lambda: holder(asked, right), lambda: needs(right)(asked)):
        with pytest.raises(Forbidden, match="'kim' may not do this") as refused:
            asyncio.run(ask())
        assert f"the right to {right}" in str(refused.value.remedy)


def test_who_has_no_token_is_asked_for_one_before_any_right(database: Store, hands: Hands) -> None:
    create(database)
    with pytest.raises(Unauthorised):
        asyncio.run(needs("read")(request(loaded(database, hands), None)))


# --- quotas


def test_two_seconds_worth_may_come_at_once_and_one_batch_into_debt(database: Store, hands: Hands) -> None:
    known, who = loaded(database, hands), Who("kim", frozenset(), 100)
    known.spend(who, 199)
    known.spend(who, 150)  # one byte was left
    with pytest.raises(Busy, match="100 bytes per second") as refused:
        known.spend(who, 1)
    assert refused.value.retry_after_s == pytest.approx(1.49)
    hands.passed = 1.49
    with pytest.raises(Busy) as refused:
        known.spend(who, 1)
    assert refused.value.retry_after_s == 1.0, "at least a second"
    hands.passed = 1.5
    known.spend(who, 1)


def test_a_quota_that_is_spent_to_its_last_byte_is_used_up(database: Store, hands: Hands) -> None:
    known, who = loaded(database, hands), Who("kim", frozenset(), 100)
    known.spend(who, 200)
    with pytest.raises(Busy):
        known.spend(who, 1)


def test_what_was_not_spent_is_not_saved_up(database: Store, hands: Hands) -> None:
    known, who = loaded(database, hands), Who("kim", frozenset(), 100)
    known.spend(who, 1)
    hands.passed = 1000
    known.spend(who, 200)
    with pytest.raises(Busy):
        known.spend(who, 1)


def test_a_refusal_costs_nothing(database: Store, hands: Hands) -> None:
    known, who = loaded(database, hands), Who("kim", frozenset(), 100)
    known.spend(who, 250)
    for _ in range(5):
        with pytest.raises(Busy):
            known.spend(who, 1000)
    hands.passed = 0.51
    known.spend(who, 1)


def test_quotas_are_of_each_by_itself(database: Store, hands: Hands) -> None:
    known = loaded(database, hands, quota=10)
    slow, plain, none = Who("slow", frozenset(), 1), Who("plain", frozenset()), Who("none", frozenset(), 0)
    for who in (slow, plain):
        known.spend(who, 10_000)
        with pytest.raises(Busy, match=who.name):
            known.spend(who, 1)
    for _ in range(3):
        known.spend(none, 1 << 40)  # its own word goes before the common one: no bound


def test_who_has_a_quota_is_known(database: Store, hands: Hands) -> None:
    slow, plain, none = Who("slow", frozenset(), 1), Who("plain", frozenset()), Who("none", frozenset(), 0)
    assert [loaded(database, hands, quota=10).limited(who) for who in (slow, plain, none)] == [True, True, False]
    assert [loaded(database, hands).limited(who) for who in (slow, plain, none)] == [True, False, False]


def test_the_first_token_closes_a_service_that_meets_it_before_it_reads_them_again(database: Store, hands: Hands) -> None:
    known = loaded(database, hands, host="127.0.0.1")
    assert known.open
    asyncio.run(known.meet(f"Bearer {create(database)}"))
    assert not known.open


def test_without_a_quota_there_is_no_bound(database: Store, hands: Hands) -> None:
    known = loaded(database, hands)
    for _ in range(3):
        known.spend(Who("kim", frozenset()), 1 << 40)


# --- exposure


def test_this_machine_alone_needs_no_token(database: Store, hands: Hands) -> None:
    check_exposure(database, Settings(), hands.clock)


@pytest.mark.parametrize("state", ["none", "expired", "revoked"])
def test_it_may_not_be_reached_by_others_without_a_valid_token(database: Store, hands: Hands, state: str) -> None:
    if state != "none":
        create(database, expires=hands.clock.now() if state == "expired" else None)
    if state == "revoked":
        database.write(lambda connection: tokens.revoke(connection, "kim"))
    with pytest.raises(DiagnoseError, match="it has no token yet") as refused:
        check_exposure(database, Settings(host=OTHERS), hands.clock)
    assert (refused.value.where, "tokens create" in str(refused.value.remedy)) == (f"--host {OTHERS}", True)


def test_one_valid_token_is_enough(database: Store, hands: Hands) -> None:
    create(database, "old", expires=hands.clock.now() - 1)
    create(database, expires=hands.clock.now() + 1)
    check_exposure(database, Settings(host=OTHERS), hands.clock)


@pytest.mark.slow
def test_who_makes_the_first_token_is_told_that_the_pages_need_one_now(tmp_path: Path, diagnose: Any) -> None:
    first, second = (diagnose("tokens", "create", name, "--role", "ingest", "--data", str(tmp_path)) for name in ("kim", "lee"))
    assert "everybody needs one, also for the pages" in first.stderr
    assert first.stdout.startswith("dgn_")
    assert "everybody" not in second.stderr


# --- for whom a token speaks


@pytest.mark.parametrize("authority", ["labels", "confirmed"])
def test_what_a_token_is_bound_to_holds_in_any_case_and_who_is_not_bound_speaks_for_nobody(
    database: Store, hands: Hands, authority: str
) -> None:
    secrets = {
        name: create(database, name, role, grant=grant)
        for name, role, grant in (
            ("bound", "ingest", Grant(jobs=("ml-*",), users=("kim",))),
            ("unbound", "ingest", Grant()),
            ("kernel", "node", Grant(nodes=("gpu-1",))),
            ("admin", "admin", None),
        )
    }
    known = loaded(database, hands, authority=authority)
    grants = {name: known.who(f"Bearer {secret}").grant for name, secret in secrets.items()}
    assert grants["bound"] == Grant(jobs=("ml-*",), users=("kim",))
    assert grants["kernel"] == Grant(nodes=("gpu-1",), kernel=True)
    assert (grants["unbound"], grants["admin"]) == ((NOBODY, EVERYTHING) if authority == "confirmed" else (None, None))


def test_a_node_token_names_its_nodes_and_patterns_are_bounded(database: Store) -> None:
    for role, grant in (("node", Grant()), ("ingest", Grant(users=("",))), ("ingest", Grant(users=("u",) * 101))):
        with pytest.raises(BadName):
            create(database, role=role, grant=grant)


# --- whose projects


def test_a_token_reads_its_projects_and_who_has_all_reads_any() -> None:
    some, every = Who("kim", frozenset(), projects=("vision", "speech")), Who("root", frozenset())
    assert [some.reads(name) for name in ("vision", "speech", "default")] == [True, True, False]
    assert [every.reads(name) for name in ("vision", "default")] == [True, True]
    assert not every.anybody, "a token was needed"


@pytest.mark.parametrize(
    ("projects", "said", "known_as"),
    [
        (None, "job1", "job1"),
        (None, "vision~job1", "vision~job1"),
        (("default",), "job1", "job1"),
        (("vision", "speech"), "job1", "vision~job1"),
        (("vision", "speech"), "speech~job1", "speech~job1"),
    ],
)
def test_a_job_that_names_no_project_is_of_the_first_of_its_sender(projects: Any, said: str, known_as: str) -> None:
    assert Who("kim", frozenset(), projects=projects).named(said) == known_as


@pytest.mark.parametrize(("projects", "said"), [(("vision",), "speech~job1"), (("default",), "vision~job1")])
def test_a_job_of_another_project_is_refused(projects: tuple[str, ...], said: str) -> None:
    with pytest.raises(Forbidden, match="'kim' is for other projects"):
        Who("kim", frozenset(), projects=projects).named(said)


def test_a_sender_can_speak_for_one_of_its_projects() -> None:
    some, every = Who("kim", frozenset({"ingest"}), 7, projects=("vision", "speech")), Who("root", frozenset())
    assert some.within("speech") == Who("kim", frozenset({"ingest"}), 7, projects=("speech",))
    assert every.within("vision").projects == ("vision",)
    with pytest.raises(Forbidden, match="for other projects"):
        some.within("default")
    for name in ("", "a b", "../x", "x" * 9 + "\n"):
        with pytest.raises(BadName, match="not the name of a project"):
            every.within(name)


def test_a_token_that_names_no_project_is_of_the_default_one(database: Store, hands: Hands) -> None:
    secrets = {
        name: create(database, name, grant=Grant(projects=projects)) for name, projects in (("none", ()), ("two", ("b", "a")))
    }
    known = loaded(database, hands)
    found = {name: known.who(f"Bearer {secret}").projects for name, secret in secrets.items()}
    assert found == {"none": ("default",), "two": ("b", "a")}


def test_something_is_done_without_a_person_only_where_a_valid_token_speaks(database: Store, hands: Hands) -> None:
    create(database, "silent", grant=Grant())
    create(database, "gone", grant=Grant(users=("kim",)), expires=hands.clock.now() + 5)
    known = loaded(database, hands)
    assert known.any_speaks is True
    hands.passed = 5
    assert known.any_speaks is False


class _Sessions:
    """Others who come in: one, for as long as the test says."""

    speaks = False

    def __init__(self) -> None:
        self.lasts = True

    def who(self, secret: str) -> Who | None:
        return Who("ann", frozenset({"read"}), until=1.0, session="s") if secret == "dgs_x" else None

    def holds(self, who: Who) -> bool:
        return self.lasts and who.session == "s"


def test_who_came_in_by_something_else_is_asked_there(database: Store, hands: Hands) -> None:
    sessions = _Sessions()
    known = Tokens(database, Settings(host=OTHERS), hands.clock, (sessions,))
    asyncio.run(known.refresh())
    ann = known.who("Bearer dgs_x")
    assert (ann.name, known.holds(ann), known.any_speaks) == ("ann", True, False)
    sessions.lasts = False
    assert known.holds(ann) is False
    sessions.speaks = True
    assert known.any_speaks is True


def test_who_has_only_projects_does_not_run_the_cluster() -> None:
    for projects in (None, ("default",), ("vision", "default")):
        check_runs_the_cluster(Who("kim", frozenset(), projects=projects))
    with pytest.raises(Forbidden, match="for projects only"):
        check_runs_the_cluster(Who("kim", frozenset(), projects=("vision",)))


# --- what lasts, and who is on the same machine


def test_a_long_request_goes_on_for_as_long_as_its_token_counts(database: Store, hands: Hands) -> None:
    secret = create(database, expires=hands.clock.now() + 10)
    known = loaded(database, hands)
    who = known.who(f"Bearer {secret}")
    assert known.holds(who) is True
    assert known.holds(Who("lee", frozenset())) is False, "nobody has such a token"
    hands.passed = 10
    assert known.holds(who) is False


def test_what_needed_no_token_ends_with_the_first_one(database: Store, hands: Hands) -> None:
    known = loaded(database, hands, "127.0.0.1")
    who = known.who(None)
    assert known.holds(who) is True
    create(database)
    asyncio.run(known.refresh())
    assert known.holds(who) is False


@pytest.mark.parametrize(("owner", "let_in"), [(None, True), (lambda: True, True), (lambda: False, False)])
def test_without_a_token_only_the_user_that_runs_it_comes_in(database: Store, hands: Hands, owner: Any, let_in: bool) -> None:
    asked = request(loaded(database, hands, "127.0.0.1"), None)
    if owner is not None:
        asked.scope[OWNER] = owner
    if let_in:
        assert asyncio.run(sender(asked)).name == "local"
        return
    with pytest.raises(Unauthorised, match="only to the user of this machine"):
        asyncio.run(sender(asked))


def test_with_a_token_it_does_not_matter_which_user_sends(database: Store, hands: Hands) -> None:
    asked = request(loaded(database, hands, "127.0.0.1"), f"Bearer {create(database)}")
    asyncio.run(asked.app.state.service.tokens.refresh())
    asked.scope[OWNER] = lambda: False
    assert asyncio.run(sender(asked)).name == "kim"
