"""The worker process of a service: it does at low priority what needs a model or much computing.

To the worker that learns from kept lines (``diagnose.learning.worker``) it adds tasks, which need the service's database. All
that it holds may be lost: rules and incidents are in the database, and tasks stay there until their answer is stored.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from diagnose.agent.explain import improve
from diagnose.agent.witnesses import person_knows
from diagnose.errors import DiagnoseError, said_first
from diagnose.knowledge.rules import Family, Rule, load
from diagnose.learning.learned_rule import Counts, LearnedRule, State, project_of
from diagnose.learning.rule_store import RuleStore, settle
from diagnose.learning.school import Workable
from diagnose.learning.wire import emit
from diagnose.learning.worker import Worker, process
from diagnose.learning.write_failures import compare, confirm, taught, teach, watch
from diagnose.report import EvidenceLine, Report
from service.store import Store, Within, attempts, away, incidents, kept_lines, tasks
from service.store import tables as t
from service.store.diagnoses import gist, unpacked
from service.store.incidents import StoreIncidents

_MOST_BODIES = 20_000
_HEALTHY_RUNS, _HEALTHY_LINES = 20, 500


class _Notes(RuleStore):
    """What ``watch`` works with: rules that compile here, and counts that are noted first, because they are stored all at
    once.
    """

    def __init__(self, database: Store, workable: Workable, project: str | None) -> None:
        """``project``: whose job it is that the rules are held against."""
        super().__init__(database)
        self._workable, self._project = workable, project
        self.counts: list[tuple[str, str, Counts]] = []

    def rules(self, *states: State, family: Family | None = None) -> list[LearnedRule]:
        known = super().rules(*states, family=family)
        return self._workable.of([one for one in known if one.may_learn_from(self._project)])

    def count(self, rule_id: str, workload: str, counts: Counts) -> None:
        self.counts.append((rule_id, workload, counts))

    def write(self, known: LearnedRule, was: State) -> bool:
        return False  # states follow from the counts when those are stored


class ServiceWorker(Worker):
    """The worker of a service. It also does tasks."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.database = Store(about["database"])
        self.incidents = StoreIncidents(self.database)
        super().__init__(about, RuleStore(self.database), roots=self.incidents.roots)
        self._shipped = load()
        self._confirming = asyncio.Lock()
        self._records = self.database.read(incidents.records)

    async def do(self, task: dict[str, Any]) -> None:
        emit(begun=task["id"])  # if one of them ends this process, the service knows which tasks were in hand
        try:
            answer = await {"ask": self._ask, "confirm": self._confirm, "watch": self._watch}[task["task"]](task)
            emit(done=task["id"], **answer)
        except SQLAlchemyError as error:
            if away(error):
                emit(again=task["id"], why=said_first(error))
            else:  # it would be the same the next time
                emit(done=task["id"], result={"problem": f"the database: {said_first(error)}"})
        except DiagnoseError as error:
            emit(done=task["id"], result={"problem": str(error)})
        except Exception as error:
            logging.exception("the task %s", task)
            emit(done=task["id"], result={"problem": f"{type(error).__name__}: {error}"[:500]})
        finally:
            self.emit_usage()

    async def _ask(self, task: dict[str, Any]) -> dict[str, Any]:
        """May a model improve this diagnosis?"""
        report, made_at = await asyncio.to_thread(self._report, task["attempt_id"])
        if self.model is None or report is None or made_at != task["detail"]["made_at"]:
            return {"result": {"asked": False, "why": "there is another diagnosis by now"}}
        rules = await asyncio.to_thread(self._rules)
        evidence = await asyncio.to_thread(
            self.database.read, lambda connection: kept_lines.evidence(connection, task["attempt_id"], rules)
        )
        badly = await asyncio.to_thread(
            self.database.read, lambda connection: attempts.ended_badly(connection, task["attempt_id"])
        )
        before = self.model.spent(report.job.id)
        past = StoreIncidents(self.database, _project(report))
        found = await improve(report, evidence, self.model, past, records=self._records, may_be_healthy=not badly)
        await asyncio.to_thread(self._keep_records)
        tokens = self.model.spent(report.job.id) - before
        result = {"asked": found.asked, "replaced": found.replaced, "why": found.why, "rules": gist(report), "tokens": tokens}
        if found.opinion is not None:
            result["said"] = found.opinion.reason
            result["model"] = found.report.agent.model if found.report.agent is not None else None
        changed = await self._taught(found.report, task["attempt_id"])
        if found.report is report:
            return {"result": result, "changed": changed}
        return {"result": result, "report": found.report.as_dict(), "made_at": made_at, "changed": changed}

    async def _taught(self, report: Report, attempt: int) -> list[tuple[str, State]]:
        """What an answer says for and against the rules that wait in shadow, and the rule that is made of it."""
        now, project = time.time(), _project(report)
        bodies = await asyncio.to_thread(
            self.database.read, lambda connection: kept_lines.bodies(connection, attempt, _MOST_BODIES)
        )
        met = await asyncio.to_thread(compare, RuleStore(self.database), report, bodies, now)
        changed: list[tuple[str, State]] = [(one.rule.id, one.state) for one in met]
        if not taught(report):
            return changed
        well = await asyncio.to_thread(
            self.database.read, lambda connection: kept_lines.healthy(connection, _HEALTHY_RUNS, _HEALTHY_LINES)
        )
        async with self._confirming:
            past = StoreIncidents(self.database, project)
            made = await teach(report, self.store, past, now, healthy=well, project=project)
        return [*changed, (made.rule.id, "shadow")] if made.rule is not None else changed

    def _keep_records(self) -> None:
        self.database.write(lambda connection: incidents.keep_records(connection, self._records))

    def _was_right(self, report: Report, reason: str) -> None:
        """Somebody knows the reason, which shows whether the model was right."""
        person_knows(self._records, report, reason)
        self._keep_records()

    async def _confirm(self, task: dict[str, Any]) -> dict[str, Any]:
        """A diagnosis is confirmed, or corrected: remember it, and write a rule for it."""
        attempt, detail = task["attempt_id"], task["detail"]
        report, _ = await asyncio.to_thread(self._report, attempt)
        if report is None:
            return {"result": {"problem": "there is no report to learn from"}}
        if detail["by"] == "action" and report.diagnosis.reason != detail.get("reason", report.diagnosis.reason):
            return {"result": {"why": "there is another diagnosis by now"}}
        now = time.time()
        await asyncio.to_thread(self._was_right, report, detail.get("reason") or report.diagnosis.reason)
        if detail.get("reason") == "healthy":
            lines = await asyncio.to_thread(
                self.database.read, lambda connection: kept_lines.bodies(connection, attempt, _MOST_BODIES)
            )
            return await asyncio.to_thread(self._counted, task["id"], self._notes(_project(report)), lines, now, well=True)
        if detail.get("line") is not None:
            report = await asyncio.to_thread(self._with_root, attempt, report, detail.get("source"), detail["line"])
        elif report.outcome != "failed":
            report = report.model_copy(update={"outcome": "failed"})
        well = await asyncio.to_thread(
            self.database.read, lambda connection: kept_lines.healthy(connection, _HEALTHY_RUNS, _HEALTHY_LINES)
        )
        async with self._confirming:
            made = await confirm(
                report,
                self.store,
                StoreIncidents(self.database, _project(report)),
                now,
                model=self.model,
                healthy=well,
                reason=detail.get("reason"),
                by=detail["by"],
                project=_project(report),
            )
        result = {
            "rule": made.rule.id if made.rule else None,
            "known": made.known,
            "refused": [f"{refusal.name}: {refusal.what}" for _, refusal in made.refused],
            "notes": list(made.notes),
        }
        return {"result": result, "changed": [(made.rule.id, "shadow")] if made.rule else []}

    async def _watch(self, task: dict[str, Any]) -> dict[str, Any]:
        """A job has ended: count what it says for or against failure rules, and which filters were of use."""
        detail, now = task["detail"], time.time()
        workload = detail["workload"] or ""

        def work() -> dict[str, Any]:
            notes = self._notes(project_of(workload))
            for rule, lines in detail["dropped"].items():
                notes.count(rule, workload, Counts(lines, 0, 1, now))
            bodies = self.database.read(lambda connection: kept_lines.bodies(connection, task["attempt_id"], _MOST_BODIES))
            return self._counted(task["id"], notes, bodies, now, well=detail["well"], workload=workload)

        return await asyncio.to_thread(work)

    def _notes(self, project: str | None) -> _Notes:
        return _Notes(self.database, self.workable, project)

    def _counted(
        self, task: int, notes: _Notes, bodies: Sequence[str], now: float, *, well: bool, workload: str = ""
    ) -> dict[str, Any]:
        """Match a job's lines against the failure rules. The result is stored with the end of the task, so a task that is begun
        again never counts a job twice.
        """
        watch(notes, bodies, now, well=well, workload=workload)

        def work(connection: Connection) -> dict[str, Any]:
            if not tasks.under_way(connection, task):
                return {"result": {}}
            store = RuleStore(Within(connection))
            for counts in notes.counts:
                store.count(*counts)
            changed = settle(store, now)
            result = {"retired": [one.rule.id for one in changed if one.state == "retired"]}
            tasks.end(connection, task, "done", result, now)
            return {"result": result, "changed": [(one.rule.id, one.state) for one in changed]}

        return self.database.write(work)

    def _report(self, attempt_id: int) -> tuple[Report | None, float]:
        d = t.diagnoses.c
        row = self.database.read(
            lambda connection: connection.execute(select(d.report, d.made_at).where(d.attempt_id == attempt_id)).first()
        )
        return (Report.model_validate(unpacked(row.report)), row.made_at) if row is not None else (None, 0.0)

    def _rules(self) -> list[Rule]:
        return [*self._shipped, *(known.rule for known in self.store.rules("active"))]

    def _with_root(self, attempt_id: int, report: Report, source: str | None, number: int) -> Report:
        """``report`` with the root line that a person named."""
        row = self.database.read(lambda connection: kept_lines.line(connection, attempt_id, source, number))
        if row is None:
            raise DiagnoseError(
                "that line was not kept", where=f"{source or 'any source'}:{number}", remedy="name one of the kept lines"
            )
        root = EvidenceLine(source=row.name, line=row.line, text=row.text, role="root_cause", rank=row.rank, node=row.node)
        diagnosis = report.diagnosis.model_copy(update={"root_cause": root})
        return report.model_copy(update={"outcome": "failed", "diagnosis": diagnosis})


def _project(report: Report) -> str | None:
    return project_of(report.job.id)


if __name__ == "__main__":
    process(ServiceWorker)
