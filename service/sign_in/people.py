"""A person's way to the OpenID provider and back (authorization code, PKCE, state, nonce), and the session that begins then.

The service keeps nothing about somebody who is on the way: that is in a sealed cookie of the browser that set out. So nobody
can fill the memory with sign-ins that are never ended, and whoever comes back must be whoever set out. Sessions are in memory:
they end by their time, when somebody signs out, and when the service restarts.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote, urlencode

from service.acting.executors.executor import Problem
from service.auth import Who
from service.clock import SYSTEM, Clock
from service.errors import Forbidden, Unauthorised, Unavailable
from service.net.client import Answer, Unreachable
from service.sign_in.access import Provider, in_group, role_of
from service.sign_in.issuer import Endpoints
from service.store.tokens import ROLES, hash_of

log = logging.getLogger("diagnose.sign_in")
PREFIX: Final = "dgs_"
ON_THE_WAY_S: Final = 600
_MOST_SESSIONS: Final = 10_000
_MOST_GROUPS: Final = 2_000
_LONGEST_NAME: Final = 100
_AGAIN: Final = "go back to the page where you sign in, and try again"


@dataclass(frozen=True, slots=True)
class Begun:
    """Where the browser goes, and what it keeps meanwhile."""

    address: str
    cookie: str


@dataclass(frozen=True, slots=True)
class Arrived:
    """The session, and where its owner wanted to go."""

    secret: str
    target: str
    lasts_s: float
    name: str


class Sessions:
    """Those who are signed in."""

    speaks = False

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._by_hash: dict[str, Who] = {}

    def begin(self, who: Who) -> str:
        """The secret of a new session."""
        now = self._clock.now()
        self._by_hash = {key: one for key, one in self._by_hash.items() if one.until is not None and now < one.until}
        while len(self._by_hash) >= _MOST_SESSIONS:
            del self._by_hash[next(iter(self._by_hash))]
        secret = PREFIX + secrets.token_urlsafe(32)
        self._by_hash[hash_of(secret)] = replace(who, session=hash_of(secret))
        return secret

    def who(self, secret: str) -> Who | None:
        if not secret.startswith(PREFIX):
            return None
        who = self._by_hash.get(hash_of(secret))
        if who is None or who.until is None or self._clock.now() >= who.until:
            raise Unauthorised("the session has ended", remedy="sign in again")
        return who

    def holds(self, who: Who) -> bool:
        return who.until is not None and self._clock.now() < who.until and who.session in self._by_hash

    def end(self, secret: str) -> None:
        self._by_hash.pop(hash_of(secret), None)


class People:
    """Lets people sign in at one provider."""

    def __init__(self, provider: Provider, sessions: Sessions, clock: Clock = SYSTEM) -> None:
        self._provider, self._sessions, self._clock = provider, sessions, clock
        self._key = secrets.token_bytes(32)  # after a restart, who is on the way sets out again
        self.button = provider.button

    async def refresh(self) -> None:
        await self._provider.issuer.refresh()

    # --- there ---------------------------------------------------------------------------------------------------------------

    def begin(self, back: str, target: str) -> Begun:
        """``back``: the address that the provider sends the browser to. ``target``: where its owner wants to go."""
        where = self._endpoints().authorization
        if where is None:
            raise Unavailable("the provider does not say where people sign in", remedy="see the service's log")
        on_the_way = {
            "state": secrets.token_urlsafe(32),
            "nonce": secrets.token_urlsafe(32),
            "verifier": secrets.token_urlsafe(48),
            "back": back,
            "target": target[:1000],
            "until": self._clock.now() + ON_THE_WAY_S,
        }
        challenge = hashlib.sha256(str(on_the_way["verifier"]).encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self._provider.client_id,
            "redirect_uri": back,
            "scope": self._provider.scopes,
            "state": on_the_way["state"],
            "nonce": on_the_way["nonce"],
            "code_challenge": _base64(challenge),
            "code_challenge_method": "S256",
        }
        return Begun(f"{where}{'&' if '?' in where else '?'}{urlencode(asked)}", self._sealed(on_the_way))

    # --- and back ------------------------------------------------------------------------------------------------------------

    async def arrive(self, said: Mapping[str, str], cookie: str | None) -> Arrived:
        """What the provider ``said`` in the address, and the cookie of the browser -> a session."""
        on_the_way = self._opened(cookie)
        if on_the_way is None or not hmac.compare_digest(on_the_way["state"].encode(), said.get("state", "").encode()):
            raise Unauthorised("this sign-in was not begun in this browser, or too long ago", remedy=_AGAIN)
        if said.get("iss", self._provider.issuer.url) != self._provider.issuer.url:
            raise Unauthorised("another provider than the one that was asked has answered", remedy=_AGAIN)
        if "error" in said or not said.get("code"):
            why = said.get("error_description") or said.get("error") or "it sent no code"
            raise Unauthorised(f"the provider did not sign you in: {_plain(why)}", remedy=_AGAIN)
        given = await self._exchanged(said["code"], on_the_way)
        claims = self._provider.issuer.claims(str(given.get("id_token", "")), self._provider.client_id)
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), on_the_way["nonce"].encode()):
            raise Unauthorised("the provider's answer belongs to another sign-in", remedy=_AGAIN)
        audience = claims["aud"]
        if isinstance(audience, list) and len(audience) > 1 and claims.get("azp") != self._provider.client_id:
            raise Unauthorised("the provider's answer is for another program", remedy=_AGAIN)
        who = self._who({**claims, **await self._more(given, claims)})
        log.info("%s signed in: %s", who.name, ", ".join(sorted(who.may)))
        return Arrived(self._sessions.begin(who), on_the_way["target"], self._provider.session_s, who.name)

    async def _exchanged(self, code: str, on_the_way: dict[str, Any]) -> dict[str, Any]:
        """The code is worth tokens, to us only: we have its verifier, and the client's secret."""
        endpoints = self._endpoints()
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": on_the_way["back"],
            "code_verifier": on_the_way["verifier"],
        }
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        try:
            secret = self._provider.secret()
        except Problem as error:
            raise Unavailable(error.what, remedy="an administrator must mend this") from None
        client = self._provider.client_id
        if secret is None or endpoints.in_body:
            fields |= {"client_id": client} | ({"client_secret": secret} if secret is not None else {})
        else:
            pair = f"{quote(client, safe='')}:{quote(secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        answer = await self._asked("POST", endpoints.token, headers, urlencode(fields).encode())
        found = answer.json()
        if answer.status != 200 or not isinstance(found, dict):
            why = found.get("error_description") or found.get("error") if isinstance(found, dict) else answer.status
            log.warning("the provider does not take the code: %s", _plain(str(why)))
            raise Unauthorised(f"the provider does not take the code: {_plain(str(why))}", remedy=_AGAIN)
        return found

    async def _more(self, given: dict[str, Any], claims: dict[str, Any]) -> dict[str, Any]:
        """What the provider tells only if it is asked again: many have the groups there."""
        where, token = self._endpoints().userinfo, given.get("access_token")
        wanted = (self._provider.groups, self._provider.name)
        if all(name in claims for name in wanted) or where is None or not isinstance(token, str) or not token.isprintable():
            return {}
        answer = await self._asked("GET", where, {"authorization": f"Bearer {token}", "accept": "application/json"})
        found = answer.json()
        if answer.status != 200 or not isinstance(found, dict) or found.get("sub") != claims["sub"]:
            return {}
        return {name: found[name] for name in (*wanted, "email_verified") if name in found and name not in claims}

    async def _asked(self, method: str, url: str | None, headers: dict[str, str], body: bytes | None = None) -> Answer:
        if url is None:
            raise Unavailable("the provider does not say where it gives tokens", remedy="see the service's log")
        try:
            return await self._provider.issuer.ask(method, url, headers, body)
        except Unreachable as error:
            raise Unavailable(f"the provider does not answer: {error}", remedy="try again", retry_after_s=10) from None

    def _who(self, claims: dict[str, Any]) -> Who:
        groups = claims.get(self._provider.groups, [])
        names = [one for one in groups if isinstance(one, str)][:_MOST_GROUPS] if isinstance(groups, list) else []
        name = _name(claims, self._provider.name)
        found = role_of(self._provider.allow, in_group(names))
        if found is None:
            log.warning("%s signed in, and none of their %d groups is let in", name, len(names))
            raise Forbidden(f"{name} is in no group that may use this service", remedy="ask an administrator of the service")
        role, grant = found
        projects = None if grant.everything else grant.projects
        return Who(name, ROLES[role], grant=grant, projects=projects, until=self._clock.now() + self._provider.session_s)

    def _endpoints(self) -> Endpoints:
        found = self._provider.issuer.endpoints
        if found is None:
            raise Unavailable("the provider was not heard of yet", remedy="try again in a moment", retry_after_s=5)
        return found

    # --- what the browser keeps ----------------------------------------------------------------------------------------------

    def _sealed(self, value: dict[str, Any]) -> str:
        text = _base64(json.dumps(value).encode())
        return f"{text}.{self._seal(text)}"

    def _opened(self, cookie: str | None) -> dict[str, Any] | None:
        """What a cookie of ours says; None if it is not ours, or too old."""
        text, _, seal = (cookie or "").partition(".")
        if not hmac.compare_digest(seal.encode(), self._seal(text).encode()):
            return None
        value: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return value if self._clock.now() < value["until"] else None

    def _seal(self, text: str) -> str:
        return _base64(hmac.new(self._key, text.encode(), hashlib.sha256).digest())


def _name(claims: dict[str, Any], wanted: str) -> str:
    """What somebody is called in the audit trail. An address that was not verified is anybody's."""
    said = claims.get(wanted)
    if wanted == "email" and claims.get("email_verified", True) not in (True, "true"):  # some providers say it as a text
        said = None
    good = isinstance(said, str) and 0 < len(said) <= _LONGEST_NAME and said.isprintable()
    return str(said) if good else str(claims["sub"])[:_LONGEST_NAME]


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _plain(text: str) -> str:
    return "".join(one for one in text if one.isprintable())[:200]
