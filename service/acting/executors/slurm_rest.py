"""Slurm through slurmrestd, with a JSON web token.

The version of the API is found out: slurmrestd lists its versions in ``/openapi/v3``, and the newest that we know is used. No
known version can requeue a job, and none before 0.0.39 can drain a node. What a slurmrestd cannot do raises ``Unsupported``, so
that the next door (``slurm_commands``) does it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from service.acting.executors.executor import Problem
from service.acting.executors.http import Server, secret
from service.acting.executors.slurm import FOUND_DEAD, Canceller, Job, Node, Run, Unsupported
from service.net.client import Answer

VERSIONS = ("v0.0.43", "v0.0.42", "v0.0.41", "v0.0.40", "v0.0.39", "v0.0.38", "v0.0.37", "v0.0.36")
"""newest first"""
_LARGEST_COUNT = 1 << 31
_REQUEUED_HELD = "job requeued in held state"
_UNKNOWN = ("Invalid job id specified", "Invalid node name specified")
_UNKNOWN_NUMBERS = (2017, 2018)
_REFUSALS = (*range(2000, 3000), 1001, 1800)
"""slurmctld's own errors, and that it could not be reached (slurm_errno.h): then nothing was done"""
_DENIED = (
    "Authentication failure",
    "Invalid authentication credential",
    "Protocol authentication error",
    "slurm_load_ctl_conf",
)


class Rest:
    """The door."""

    def __init__(
        self,
        server: Server,
        *,
        user: str,
        token_file: Path | None = None,
        token_env: str | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._server, self._user = server, user
        self._token_file, self._token_env, self._environment = token_file, token_env, environment
        self._version: str | None = None
        self._offers: frozenset[str] = frozenset()

    async def check(self) -> list[str]:
        try:
            await self._negotiate()
            answer = self._understood(await self._ask("GET", "/ping"), "ping")
        except Problem as problem:
            return [problem.what]
        pings = answer.get("pings") or []
        if not any(str(one.get("ping", one.get("responding"))) in ("UP", "True") for one in pings if isinstance(one, dict)):
            return [f"{self._server.shown}: slurmctld does not answer it"]
        return []

    async def lacks(self) -> list[str]:
        missing = [] if "post node" in self._offers else ["drain and resume nodes"]
        return [
            f"{self._server.shown} ({self._version}) cannot {' or '.join([*missing, 'requeue jobs'])}: needs commands: true"
        ]

    async def node(self, name: str) -> Node | None:
        await self._negotiate()
        found = self._first(await self._ask("GET", f"/node/{quote(name, safe='')}"), "nodes", f"node {name}")
        if found is None:
            return None
        states = {*_words(found.get("state")), *_words(found.get("state_flags"))}
        booted = float(_count(found.get("boot_time"))) or None
        return Node(str(found.get("name")), frozenset(states), str(found.get("reason") or ""), booted)

    async def nodes(self) -> tuple[str, ...]:
        return tuple(str(one["name"]) for one in await self._nodes())

    async def down(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            str(one["name"])
            for one in await self._nodes()
            if one["name"] in names and "DOWN" in _words(one.get("state")) and str(one.get("reason")).startswith(FOUND_DEAD)
        )

    async def _nodes(self) -> list[dict[str, Any]]:
        await self._negotiate()
        found = self._understood(await self._ask("GET", "/nodes"), "nodes").get("nodes")
        return [one for one in found or [] if isinstance(one, dict) and one.get("name")]

    async def job(self, job_id: str) -> Job | None:
        await self._negotiate()
        if "_" in job_id:
            raise Unsupported  # it only takes numbers
        found = self._first(await self._ask("GET", f"/job/{job_id}"), "jobs", f"job {job_id}")
        if found is None:
            return None
        states = {*_words(found.get("job_state"))}
        if found.get("hold") is True or str(found.get("state_reason")) in ("JobHeldAdmin", "JobHeldUser"):
            states.add("REQUEUE_HOLD" if found.get("state_description") == _REQUEUED_HELD else "HELD")
        return Job(
            job_id,
            frozenset(states),
            _count(found.get("restart_cnt")),
            str(found.get("excluded_nodes") or ""),
            str(found.get("admin_comment") or ""),
            str(found.get("user_name") or ""),
            str(found.get("nodes") or ""),
            float(_count(found.get("start_time"))) or None,
            str(found.get("state_reason") or ""),
            _exit_code(found.get("exit_code")),
            _exit_code(found.get("derived_exit_code")),
            str(uid) if isinstance(uid := found.get("user_id"), int) else "",
        )

    async def drain(self, name: str, reason: str) -> None:
        await self._update_node(name, {"state": ["DRAIN"], "reason": reason})

    async def resume(self, name: str) -> None:
        await self._update_node(name, {"state": ["RESUME"]})

    async def can_reboot(self) -> None:
        raise Unsupported

    async def reboot(self, name: str) -> None:
        raise Unsupported

    async def note(self, job_id: str, comment: str) -> None:
        # Up to 0.0.38 an update must name an environment, and cannot set the administrators' comment.
        raise Unsupported

    async def exclude(self, job_id: str, nodes: str) -> None:
        raise Unsupported

    async def requeue(self, job_id: str, *, hold: bool) -> None:
        raise Unsupported

    async def release(self, job_id: str) -> None:
        raise Unsupported

    async def cancel(self, job_id: str) -> None:
        await self._negotiate()
        if "_" in job_id:
            raise Unsupported
        self._understood(await self._ask("DELETE", f"/job/{job_id}"), f"job {job_id}", changes=True)

    async def canceller(self, job: Job) -> Canceller | None:
        await self._negotiate()
        if "_" in job.id or "accounting" not in self._offers or not job.owner:
            raise Unsupported
        said = (await self._ask("GET", f"/job/{job.id}", of="slurmdb")).json()
        runs = said.get("jobs") if isinstance(said, dict) else None
        if not isinstance(runs, list):
            raise Unsupported
        # Each attempt may be a record of its own: the last one counts.
        last = max(
            (one for one in runs if isinstance(one, dict)), key=lambda one: _count(_in(one, "time", "start")), default={}
        )
        if "CANCELLED" not in _words(_in(last, "state", "current")):
            return None
        by = str(last.get("kill_request_user") or "")
        if not by:
            raise Unsupported  # Slurm itself, or nobody knows
        return Canceller(by, by == job.owner)

    async def runs(self, job_id: str) -> tuple[Run, ...]:
        raise Unsupported  # its records do not say which is which attempt

    # --- speaking

    async def _update_node(self, name: str, change: dict[str, Any]) -> None:
        await self._negotiate()
        if "post node" not in self._offers:
            raise Unsupported
        self._understood(await self._ask("POST", f"/node/{quote(name, safe='')}", change), f"node {name}", changes=True)

    async def _negotiate(self) -> None:
        if self._version is not None:
            return
        answer = await self._server.ask("GET", "/openapi/v3", headers=self._headers())
        self._refused(answer)
        document = answer.json()
        paths = document.get("paths") if isinstance(document, dict) else None
        if not isinstance(paths, dict):
            raise Problem(
                f"{self._server.shown}/openapi/v3 is not an API document ({answer.status}); check that it is slurmrestd",
                may_retry=True,
            )
        for version in VERSIONS:
            if any(str(path).startswith(f"/slurm/{version}/job/") for path in paths):
                node: Any = next((what for path, what in paths.items() if str(path).startswith(f"/slurm/{version}/node/")), {})
                offers = {"post node"} if isinstance(node, dict) and "post" in node else set()
                offers |= {"accounting"} if any(str(path).startswith(f"/slurmdb/{version}/job/") for path in paths) else set()
                self._offers = frozenset(offers)
                self._version = version
                return
        raise Problem(f"{self._server.shown} speaks none of {VERSIONS[-1]} to {VERSIONS[0]}: load an openapi plugin of these")

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None, of: str = "slurm") -> Answer:
        headers = self._headers()
        if body is not None:
            headers["Content-Type"] = "application/json"
        content = json.dumps(body).encode() if body is not None else None
        answer = await self._server.ask(method, f"/{of}/{self._version}{path}", headers=headers, body=content)
        if answer.status == 404 and answer.json() is None:  # it was upgraded meanwhile: find the version again next time
            self._version = None
            raise Problem(f"{self._server.shown} has no {path} any more", may_retry=True)
        return answer

    def _headers(self) -> dict[str, str]:
        token = secret(self._token_file, self._token_env, "the token for slurmrestd", self._environment)
        return {"X-SLURM-USER-NAME": self._user, "X-SLURM-USER-TOKEN": token, "Accept": "application/json"}

    def _refused(self, answer: Answer) -> None:
        if answer.status in (401, 403):
            raise Problem(
                f"{self._server.shown} refuses the token of {self._user}: see scontrol token username={self._user}",
                may_retry=True,
            )

    def _understood(self, answer: Answer, what: str, *, changes: bool = False) -> dict[str, Any]:
        """The document in the answer, if it says that all went well."""
        self._refused(answer)
        said = answer.json()
        errors = said.get("errors") if isinstance(said, dict) else None
        if answer.status == 200 and isinstance(said, dict) and not errors:
            return said
        first = next((one for one in errors or [] if isinstance(one, dict)), {})
        why = f"{first.get('error', '')} {first.get('description', '')} {first.get('source', '')}".strip() or answer.text
        if any(denied in why for denied in _DENIED):  # old versions say so with status 500
            raise Problem(
                f"{self._server.shown} refuses the token of {self._user}, or slurmctld is away: {why[:200]}", may_retry=True
            )
        refused = 400 <= answer.status < 500 or first.get("error_number", first.get("errno")) in _REFUSALS
        maybe = changes and not refused  # a proxy, for example, may have lost the answer
        raise Problem(
            f"{self._server.shown}: {what}: {why[:200]} ({answer.status})",
            state="unknown" if maybe else "failed",
            may_retry=maybe or answer.may_go_better,
        )

    def _first(self, answer: Answer, key: str, what: str) -> dict[str, Any] | None:
        """The thing that was asked for; None if it does not exist."""
        said = answer.json()
        errors = said.get("errors") if isinstance(said, dict) else None
        for error in errors if isinstance(errors, list) else []:
            if isinstance(error, dict) and (
                error.get("error") in _UNKNOWN or {error.get("errno"), error.get("error_number")} & {*_UNKNOWN_NUMBERS}
            ):
                return None
        found = self._understood(answer, what).get(key)
        if not isinstance(found, list) or not found:
            return None
        if len(found) > 1 or not isinstance(found[0], dict):
            raise Problem(f"{what} is {len(found)} things: an array is restarted by its tasks")
        return found[0]


def _words(value: Any) -> Iterable[str]:
    """A state is a word or a list of words, depending on the version."""
    return [str(one).upper() for one in (value if isinstance(value, list) else [value] if value else [])]


def _exit_code(value: Any) -> str:
    """As scontrol has it: code and signal. Old versions give the status of wait(2), newer ones an object."""
    if isinstance(value, dict):
        signal = value.get("signal")
        number = signal.get("id", signal.get("signal_id")) if isinstance(signal, dict) else 0
        return f"{_count(value.get('return_code'))}:{_count(number)}"
    status = _count(value)
    return f"{status >> 8 & 255}:{status & 127}"


def _in(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _count(value: Any) -> int:
    if isinstance(value, dict):  # {set, infinite, number}
        value = value.get("number")
    return value if isinstance(value, int) and 0 <= value < _LARGEST_COUNT else 0
