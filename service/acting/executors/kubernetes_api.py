"""The part of Kubernetes' API that the executor needs: objects as JSON, and errors that name their remedy.

Each change names what it was decided on (a version, a uid, or a name that must be free). So nothing is done twice, and a
request can be sent again if the server was busy or broke off. The token is read for each request, because it changes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from diagnose.backoff import Backoff
from diagnose.errors import DiagnoseError
from service.acting.executors.executor import Problem
from service.acting.executors.http import Server, secret
from service.net.client import Answer

Object = dict[str, Any]
Sleep = Callable[[float], Awaitable[None]]
_TRIES: Final = 4
_BACKOFF: Final = Backoff(0.5, 60.0)
_VERBS: Final = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
_JSON: Final = "application/json"
_NAMED: Final = f"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{_JSON}"
"""a node's status is long, and not needed"""
_PAGE: Final = 500
_MOUNTED: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Settings:
    """Which cluster, as whom, and with which limits."""

    url: str
    ca: Path | None = None
    token_file: Path | None = None
    certificate: Path | None = None
    """of a client, if there is no token"""
    key: Path | None = None
    namespace: str = "diagnose"
    """where notes about restarts under way are stored"""
    namespaces: tuple[str, ...] = ()
    """whose jobs may be restarted; none: all that the API server allows"""
    timeout_s: float = 30.0
    """for a request"""
    patience_s: float = 90.0
    """for the pods of a job to end"""
    dry_run: bool = False

    @classmethod
    def in_cluster(cls, environment: Mapping[str, str], mounted: Path = _MOUNTED) -> Settings:
        """As a pod finds them."""
        host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise DiagnoseError(
                "diagnose does not run in a pod, so the cluster must be named",
                where="KUBERNETES_SERVICE_HOST is not set",
                remedy="give the url, ca and token_file of the API server",
            )
        try:
            own = (mounted / "namespace").read_text("utf-8").strip()
        except OSError as error:
            raise DiagnoseError(
                f"the service account is not mounted: {error.strerror}",
                where=str(mounted),
                remedy="set automountServiceAccountToken: true, as deploy/kubernetes/executor.yaml does",
            ) from None
        shown = f"[{host}]" if ":" in host else host
        return cls(f"https://{shown}:{port}", ca=mounted / "ca.crt", token_file=mounted / "token", namespace=own)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object is, or the objects of a kind."""

    group: str
    version: str
    plural: str
    namespace: str | None = None
    name: str | None = None
    sub: str | None = None
    """a part that has rights of its own: status"""

    @property
    def path(self) -> str:
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespace is not None:
            parts += ["namespaces", self.namespace]
        parts += [self.plural] if self.name is None else [self.plural, self.name]
        parts += [self.sub] if self.sub is not None else []
        return "/" + "/".join(quote(part, safe="") for part in parts)

    @property
    def all(self) -> Place:
        return replace(self, name=None, sub=None)

    def rule(self, verb: str) -> str:
        """What a role must have."""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        resource = f"{self.plural}/{self.sub}" if self.sub is not None else self.plural
        return f'{{apiGroups: ["{self.group}"], resources: ["{resource}"], verbs: ["{verb}"]}}{where}'


class Refusal(Problem):
    """The API server refused."""

    def __init__(self, what: str, status: int, reason: str, *, may_retry: bool = False, unknown: bool = False) -> None:
        super().__init__(what, state="unknown" if unknown else "failed", may_retry=may_retry)
        self.status, self.reason = status, reason
        self.unknown = unknown
        """it may have been done: the server broke off, now or at a first try of the same request"""

    @property
    def conflict(self) -> bool:
        """The object changed after it was read."""
        return self.status == 409 and self.reason != "AlreadyExists"


class Api:
    """The API server."""

    def __init__(self, settings: Settings, sleep: Sleep = asyncio.sleep) -> None:
        parts = urlsplit(settings.url)
        if parts.scheme == "http" and settings.token_file and not _local(parts.hostname or ""):
            raise DiagnoseError("a token must not go over plain HTTP", where=settings.url[:200], remedy="use https://")
        self._server = Server(
            settings.url,
            timeout_s=settings.timeout_s,
            ca=settings.ca,
            certificate=settings.certificate,
            key=settings.key,
        )
        self.shown = self._server.shown
        self._token_file, self._patience_s, self._sleep = settings.token_file, settings.timeout_s, sleep

    async def get(self, place: Place) -> Object | None:
        """The object; None if it does not exist."""
        try:
            return await self._ask("GET", place)
        except Refusal as refusal:
            if refusal.status == 404:
                return None
            raise

    async def listed(self, place: Place, selector: str = "", *, named: bool = False) -> AsyncIterator[Object]:
        """The objects of a kind, page by page. ``named``: only their metadata."""
        query = {"limit": str(_PAGE), **({"labelSelector": selector} if selector else {})}
        while True:
            said = await self._ask("GET", place.all, query=query, accept=_NAMED if named else _JSON)
            items = said.get("items")
            for one in items if isinstance(items, list) else []:
                yield one
            following = (said.get("metadata") or {}).get("continue")
            if not following:
                return
            query["continue"] = str(following)

    async def read(self, path: str) -> Object:
        """What is not an object: versions and groups."""
        answer, _ = await self._answered("GET", path, None, False)
        return self._understood(answer, "GET", path)

    async def create(self, place: Place, body: Object, *, dry_run: bool = False) -> Object:
        return await self._ask("POST", place.all, body, dry_run=dry_run)

    async def patch(self, place: Place, body: Object, *, dry_run: bool = False) -> Object:
        """A merge patch (RFC 7386): null removes a field. With a resourceVersion in it, only that version is changed."""
        return await self._ask("PATCH", place, body, dry_run=dry_run)

    async def delete(self, place: Place, seen: Object | None = None, *, last: bool = False, dry_run: bool = False) -> None:
        """Delete only what was ``seen``. ``last``: after all its dependents, so that its end is also theirs."""
        policy = "Foreground" if last else "Background"
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}
        if seen is not None:
            body["preconditions"] = {name: seen["metadata"][name] for name in ("uid", "resourceVersion")}
        await self._ask("DELETE", place, body, dry_run=dry_run)

    # --- speaking

    async def _ask(
        self,
        method: str,
        place: Place,
        body: Object | None = None,
        *,
        dry_run: bool = False,
        query: Mapping[str, str] | None = None,
        accept: str = _JSON,
    ) -> Object:
        query = dict(query or {})
        if dry_run and method != "DELETE":
            query["dryRun"] = "All"
        if dry_run and method == "DELETE":
            body = {**(body or {}), "dryRun": ["All"]}
        if method in ("POST", "PATCH"):
            query["fieldValidation"] = "Strict"  # a silently dropped field would change the job
            query["fieldManager"] = "diagnose"
        path = place.path + (f"?{urlencode(query)}" if query else "")
        content = json.dumps(body).encode() if body is not None else None
        answer, unknown = await self._answered(method, path, content, method != "GET" and not dry_run, accept)
        return self._understood(answer, method, path, place, unknown)

    async def _answered(
        self, method: str, path: str, content: bytes | None, changes: bool, accept: str = _JSON
    ) -> tuple[Answer, bool]:
        """The answer. It is asked again, within limits, if the token was renewed or the server was busy.

        Also says whether a try broke off that may have been carried out. Then "gone" or "another version" in the last answer
        may be our own doing.
        """
        waited, renewed, tries, unknown = 0.0, False, 0, False
        while True:
            try:
                answer = await self._server.ask(method, path, headers=self._headers(method, content, accept), body=content)
            except Problem as problem:
                if unknown:
                    problem.state = "unknown"
                raise
            tries += 1
            unknown = unknown or (changes and answer.status >= 500)
            if answer.status == 401 and not renewed:
                renewed, pause = True, 0.0
            elif answer.status == 429 or answer.status >= 500:
                pause = answer.retry_after_s if answer.retry_after_s is not None else _BACKOFF.after(tries)
            else:
                return answer, unknown
            if tries >= _TRIES or waited + pause > self._patience_s:
                return answer, unknown
            waited += pause
            await self._sleep(pause)

    def _headers(self, method: str, content: bytes | None, accept: str) -> dict[str, str]:
        headers = {"Accept": accept}
        if self._token_file is not None:
            token = secret(self._token_file, None, "the token for Kubernetes", {})
            headers["Authorization"] = f"Bearer {token}"
        if content is not None:
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return headers

    def _understood(self, answer: Answer, method: str, path: str, place: Place | None = None, unknown: bool = False) -> Object:
        said = answer.json()
        if answer.status in (200, 201, 202) and isinstance(said, dict):
            return said
        status = said if isinstance(said, dict) and said.get("kind") == "Status" else {}
        reason = str(status.get("reason") or "")
        why = _printable(str(status.get("message") or answer.text))
        what = f"{self.shown}: {method} {path.partition('?')[0]}: "
        code = answer.status
        if code == 401:
            raise Refusal(f"{what}the token is refused: see token_file", code, reason, may_retry=True, unknown=unknown)
        if code == 403 and place is not None and (" cannot " in why or not why):  # else a quota or an admission controller
            rule = place.rule("list" if method == "GET" and place.name is None else _VERBS[method])
            raise Refusal(
                f"{what}not allowed: it needs the rule {rule} (deploy/kubernetes/executor.yaml); {why}",
                code,
                reason,
                may_retry=True,
                unknown=unknown,
            )
        if code < 300:
            raise Refusal(
                f"{what}the answer has no JSON object; check that the url is that of an API server",
                code,
                reason,
                unknown=method != "GET",
            )
        later = answer.may_go_better or code == 403 or code >= 500
        raise Refusal(f"{what}{why} ({code})", code, reason, may_retry=later, unknown=unknown)


def _printable(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:400]


def _local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
