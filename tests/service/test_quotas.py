"""What each project may use: no project feels what another one takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from service.errors import BadName, Busy
from service.live.stream import End
from service.store import Store
from service.store.quotas import NONE, OTHERS, Quota, limit, of_jobs, quotas, stored_bytes
from service.telemetry import Telemetry
from tests.support.live import Hands, Live

Test = Callable[[Live, Hands], Coroutine[Any, Any, None]]


def limited(**bounds: dict[str, int]) -> Callable[[Test], Callable[[Path], None]]:
    """project -> bounds; the test gets a service that knows them."""

    def made(test: Test) -> Callable[[Path], None]:
        def run(tmp_path: Path) -> None:
            async def inside() -> None:
                hands = Hands()
                async with Live(tmp_path, hands) as here:
                    for project, said in bounds.items():
                        await here.store.awrite(partial(limit, project=OTHERS if project == "others" else project, bounds=said))
                    await here.quotas.refresh()
                    await test(here, hands)

            asyncio.run(inside())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return made


def refused(here: Live, project: str, bound: str) -> float:
    return float(here.telemetry.project_refused.labels(project, bound)._value.get())


@limited(apes={"rate": 100})
async def test_a_rate_is_of_all_jobs_of_a_project(here: Live, hands: Hands) -> None:
    await here.send(b"x" * 199 + b"\n", "apes~one")
    with pytest.raises(Busy, match="100 bytes per second") as busy:
        await here.send(b"x\n", "apes~two")
    assert (busy.value.where, busy.value.retry_after_s) == ("apes", 1.0)
    await here.send(b"x" * 1000 + b"\n", "bees~one")
    await here.send(b"x" * 1000 + b"\n", "one")
    hands.passed += 3
    await here.send(b"x\n", "apes~two")
    assert (refused(here, "apes", "rate"), refused(here, "bees", "rate")) == (1, 0)


@limited(apes={"jobs": 2}, others={"jobs": 1})
async def test_a_project_has_so_many_jobs_at_a_time(here: Live, hands: Hands) -> None:
    await here.send(b"a\n", "apes~one")
    await here.send(b"a\n", "apes~two")
    with pytest.raises(Busy, match="2 jobs that run"):
        await here.send(b"a\n", "apes~three")
    await here.send(b"b\n", "apes~one")  # those that run go on
    await here.send(b"a\n", "bees~one")
    with pytest.raises(Busy, match="1 jobs that run"):
        await here.send(b"a\n", "bees~two")
    await here.ingest.finish("apes~one", None, End("exit", hands.clock.now(), 0))
    await here.until(lambda: here.jobs.running("apes") == 1)
    await here.send(b"a\n", "apes~three")


@limited(apes={"jobs": 1})
async def test_many_that_begin_at_once_are_not_more_than_allowed(here: Live, hands: Hands) -> None:
    sent = [here.send(b"a\n", f"apes~{number}") for number in range(20)]
    answers = await asyncio.gather(*sent, return_exceptions=True)
    assert sum(isinstance(one, Busy) for one in answers) == 19
    assert here.jobs.running("apes") == 1
    # The ranks of one job are one job, also while it is being made.
    ended = here.ingest.finish("apes~0", None, End("exit", hands.clock.now(), 0))
    await ended
    await here.until(lambda: here.jobs.running("apes") == 0)
    ranks = [here.send(b"a\n", "apes~next", source=f"rank{number}") for number in range(8)]
    assert len(await asyncio.gather(*ranks)) == 8


@limited(apes={"sources": 3})
async def test_a_project_has_so_many_sources(here: Live, hands: Hands) -> None:
    for number in range(3):
        await here.send(b"a\n", f"apes~{number % 2}", source=f"rank{number}")
    with pytest.raises(Busy, match="3 sources"):
        await here.send(b"a\n", "apes~0", source="rank9")
    await here.send(b"b\n", "apes~0", source="rank0")
    await here.send(b"a\n", "bees~0", source="rank9")


@limited(apes={"storage": 6000})
async def test_who_has_stored_enough_stores_no_more_until_something_is_deleted(here: Live, hands: Hands) -> None:
    await here.send(b"mind the gap " * 200 + b"\n", "apes~one")
    await here.jobs.fresh("apes~one")
    hands.passed += 61
    await here.quotas.refresh()
    assert here.quotas.stored("apes") == 4096 + len(b"mind the gap " * 200 + b"\n")
    with pytest.raises(Busy, match="stored its 6,000 bytes") as busy:
        await here.send(b"a\n", "apes~one")
    assert busy.value.retry_after_s == 60
    await here.send(b"a\n", "bees~one")
    await here.store.awrite(partial(limit, project="apes", bounds={"storage": None}))
    await here.quotas.refresh()
    await here.send(b"a\n", "apes~one")
    assert await here.store.aread(of_jobs) == {"apes", "bees"}, "whatever is in memory, and whatever was measured"


@limited(apes={"tokens": 1000})
async def test_the_model_is_not_asked_beyond_its_budget(here: Live, hands: Hands) -> None:
    here.quotas.spent("apes~one", 999)
    assert here.quotas.why_not_ask("apes~two") is None
    here.quotas.spent("apes~two", 500)
    assert "1,000 tokens" in str(here.quotas.why_not_ask("apes~one"))
    assert here.quotas.why_not_ask("one") is None
    hands.passed += 3601
    assert here.quotas.why_not_ask("apes~one") is None


def test_the_figures_of_a_project_tell_nothing_of_another() -> None:
    telemetry = Telemetry()
    telemetry.project_bytes.labels("apes").inc(7)
    telemetry.project_bytes.labels("bees").inc(8)
    told = [line for line in telemetry.text(["apes"]).decode().splitlines() if not line.startswith("#")]
    assert told[0] == 'diagnose_project_accepted_bytes_total{project="apes"} 7.0'
    assert all('project="apes"' in line for line in told)
    assert b"bees" in telemetry.text()


def test_each_bound_is_changed_by_itself_and_taken_away(store: Store) -> None:
    change = lambda project, **bounds: store.write(lambda connection: limit(connection, project, bounds))  # noqa: E731
    assert change("apes", rate=10, jobs=2) == Quota(rate=10, jobs=2)
    assert change("apes", jobs=None, tokens=7) == Quota(rate=10, tokens=7)
    change(OTHERS, storage=5)
    assert store.read(quotas) == {"apes": Quota(rate=10, tokens=7), OTHERS: Quota(storage=5)}
    assert change("apes", rate=None, tokens=None) == NONE
    assert set(store.read(quotas)) == {OTHERS}
    assert store.read(stored_bytes) == {}
    with pytest.raises(BadName):
        change("apes~run7", rate=1)


@pytest.mark.slow
def test_quotas_are_set_and_listed_on_the_command_line(diagnose: Any, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    assert diagnose("projects", "limit", "apes", "--rate", "5MiB", "--jobs", "3", "--data", data).returncode == 0
    assert diagnose("projects", "limit", "*", "--tokens", "100", "--data", data).returncode == 0
    listed = diagnose("projects", "list", "--data", data).stdout
    assert listed == "*\ttokens: 100\napes\trate: 5MiB\tjobs: 3\n"
    assert "apes\tno bounds" in diagnose("projects", "limit", "apes", "--rate", "none", "--jobs", "none", "--data", data).stdout
    for words in (["--jobs", "many"], ["--rate", "-1"], []):
        assert diagnose("projects", "limit", "apes", *words, "--data", data).returncode == 2
