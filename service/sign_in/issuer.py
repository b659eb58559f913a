"""An issuer of signed tokens (OpenID Connect, or Kubernetes): where its keys are, and whether it signed a token.

What it says of itself and its keys are fetched beside the requests, and kept. So nobody who sends a token can make the service
wait, or ask the issuer more than twice a minute.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from diagnose.errors import DiagnoseError
from service.clock import SYSTEM, Clock
from service.errors import Unauthorised, Unavailable
from service.net.client import Answer, Bounds, Client, Unreachable

log = logging.getLogger("diagnose.sign_in")
_ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip
"""those with a public key: with any other, whoever knows the public key could sign"""
_BOUNDS: Final = Bounds(10.0, 1 << 20, 10.0)
_FRESH_S: Final = 600.0
_AGAIN_S: Final = 30.0
_LEEWAY_S: Final = 60
"""by how much two clocks may differ"""
_LONGEST: Final = 16_384
_WELL_KNOWN: Final = "/.well-known/openid-configuration"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where an OpenID provider does what."""

    authorization: str | None
    token: str | None
    userinfo: str | None
    in_body: bool
    """the client's secret is wanted in the body of a request"""


class Issuer:
    """``keys`` or ``keys_file``: where its keys are, if it does not say so itself."""

    def __init__(
        self,
        url: str,
        *,
        ca: Path | None = None,
        keys: str | None = None,
        keys_file: Path | None = None,
        token_file: Path | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self.url = url
        self._is_local = _checked(url, of_this_machine=True)
        if keys is not None:
            _checked(keys, of_this_machine=self._is_local)
        self._keys_url, self._keys_file, self._token_file = keys, keys_file, token_file
        self._clock = clock
        try:
            self._client = Client(tls=ssl.create_default_context(cafile=str(ca) if ca else None))
        except (OSError, ssl.SSLError) as error:
            raise DiagnoseError(f"the certificates cannot be read: {error}", where=str(ca), remedy="see ca") from None
        self.endpoints: Endpoints | None = None
        self.generation = 0
        """grows when the keys change"""
        self._keys: Any = None
        self._raw: dict[str, Any] = {}
        self._tried = -_AGAIN_S
        self._fetched = -_FRESH_S
        self._wanted = True
        self._told = ""
        _joserfc()

    # --- beside the requests -------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Fetch what it says of itself, and its keys, if that is due."""
        now = self._clock.steady()
        due = self._wanted or now - self._fetched >= _FRESH_S
        if not due or now - self._tried < _AGAIN_S:
            return
        self._tried = now
        try:
            await self._fetch()
        except (Unreachable, _Wrong, OSError, ValueError) as error:
            if str(error) != self._told:
                log.warning("the keys of %s cannot be had: %s", self.url, error)
            self._told = str(error)
            return
        self._fetched, self._wanted, self._told = now, False, ""

    async def _fetch(self) -> None:
        if self._keys_file is not None:
            raw = json.loads(self._keys_file.read_text("utf-8"))
        else:
            where = self._keys_url
            if where is None:
                said = await self._discovered()
                where = _endpoint(said, "jwks_uri", self._is_local)
            if where is None:
                raise _Wrong("it does not say where its keys are (jwks_uri)")
            raw = (await self._asked(where)).json()
        if not isinstance(raw, dict) or not isinstance(raw.get("keys"), list):
            raise _Wrong("its keys are no JSON Web Key Set")
        if raw != self._raw:
            self._keys = _key_set(raw)
            self._raw, self.generation = raw, self.generation + 1

    async def _discovered(self) -> dict[str, Any]:
        said = (await self._asked(self.url.rstrip("/") + _WELL_KNOWN)).json()
        if not isinstance(said, dict) or said.get("issuer") != self.url:
            found = said.get("issuer") if isinstance(said, dict) else None
            raise _Wrong(f"it calls itself {found!r}: give exactly that as the issuer")
        ways = said.get("token_endpoint_auth_methods_supported")
        self.endpoints = Endpoints(
            _endpoint(said, "authorization_endpoint", self._is_local),
            _endpoint(said, "token_endpoint", self._is_local),
            _endpoint(said, "userinfo_endpoint", self._is_local),
            in_body=isinstance(ways, list) and "client_secret_basic" not in ways,
        )
        return said

    async def _asked(self, url: str) -> Answer:
        headers = {"accept": "application/json, application/jwk-set+json"}  # Kubernetes gives its keys as the second only
        if self._token_file is not None:
            headers["authorization"] = f"Bearer {self._token_file.read_text('ascii').strip()}"
        answer = await self._client.ask("GET", url, _BOUNDS, headers)
        if answer.status != 200:
            raise _Wrong(f"{url} answers {answer.status}")
        return answer

    async def ask(self, method: str, url: str, headers: dict[str, str], body: bytes | None = None) -> Answer:
        """An answer of one of its endpoints."""
        return await self._client.ask(method, url, _BOUNDS, headers, body)

    # --- for each request ----------------------------------------------------------------------------------------------------

    def claims(self, token: str, audience: str) -> dict[str, Any]:
        """What the issuer says with this token. Raises Unauthorised if it did not sign it, if it is for others, or too old."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        header = header_of(token)
        if self._keys is None:
            self._wanted = True
            raise Unavailable("the keys of the issuer are not known yet", remedy="try again", retry_after_s=5)
        self._look_for(header.get("kid"))
        registry = jwt.JWTClaimsRegistry(
            now=lambda: int(self._clock.now()),
            leeway=_LEEWAY_S,
            iss={"essential": True, "value": self.url},
            aud={"essential": True, "value": audience},
            sub={"essential": True},
            exp={"essential": True},
        )
        try:
            found = jwt.decode(token, self._keys, algorithms=list(_ALGORITHMS)).claims
            registry.validate(found)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            why = str(error) or type(error).__name__
            raise Unauthorised(f"the token is not valid: {why[:200]}", remedy="get a new one from its issuer") from None
        if not isinstance(found["sub"], str) or not 0 < len(found["sub"]) <= 300 or not found["sub"].isprintable():
            raise Unauthorised("the token is not valid: it names nobody", remedy="get another one from its issuer")
        return dict(found)

    def _look_for(self, kid: object) -> None:
        """An unknown key may be a new one: it is fetched soon, unless that was just tried."""
        known = [key.get("kid") for key in self._raw["keys"] if isinstance(key, dict)]
        if kid is None or kid in known or self._clock.steady() - self._fetched < _AGAIN_S:
            return
        self._wanted = True
        raise Unavailable("the token has a key that is not known yet", remedy="try again", retry_after_s=5)


def looks_like_one(secret: str) -> bool:
    """Whether it has the form of a signed token."""
    return secret.startswith("eyJ") and secret.count(".") == 2


def header_of(token: str) -> dict[str, Any]:
    return _part(token, 0)


def issuer_of(token: str) -> str | None:
    """Who says that it is the issuer. Nothing is checked yet."""
    said = _part(token, 1).get("iss")
    return said if isinstance(said, str) else None


def _part(token: str, which: int) -> dict[str, Any]:
    try:
        if len(token) > _LONGEST:
            raise ValueError
        text = token.split(".")[which]
        found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, IndexError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Unauthorised("the token is not valid: it cannot be read", remedy="get a new one from its issuer")
    return found


class _Wrong(Exception):
    """The issuer's answer is of no use. The sentence says why."""


def _key_set(raw: dict[str, Any]) -> Any:
    """Those keys of a set that can check signatures; others there may be of kinds that nobody knows yet."""
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    good = []
    for key in raw["keys"]:
        try:
            if isinstance(key, dict) and key.get("kty") in ("RSA", "EC", "OKP") and key.get("use", "sig") == "sig":
                good += KeySet.import_key_set({"keys": [key]}).keys
        except (JoseError, ValueError, KeyError, TypeError):
            continue
    if not good:
        raise _Wrong("none of its keys can be used")
    return KeySet(good)


def _endpoint(said: dict[str, Any], name: str, is_local: bool) -> str | None:
    found = said.get(name)
    if not isinstance(found, str):
        return None
    try:
        _checked(found, of_this_machine=is_local)
    except DiagnoseError as error:
        raise _Wrong(f"its {name} cannot be used: {error.what}") from None
    return found


def _checked(url: str, *, of_this_machine: bool) -> bool:
    """Whether it is an address of this machine. It must be one of https, or of this machine where that is allowed."""
    remedy = "give it as https://HOST/PATH, exactly as the provider does"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise DiagnoseError("not an address", where=url[:200], remedy=remedy) from None
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.fragment or not url.isprintable():
        raise DiagnoseError("not an address", where=url[:200], remedy=remedy)
    if parts.scheme == "https":
        return False
    if not (of_this_machine and (host == "localhost" or _is_loopback(host))):
        raise DiagnoseError("over plain http, others could answer in its place", where=url[:200], remedy=remedy)
    return True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _joserfc() -> None:
    try:
        import joserfc  # noqa: F401
    except ImportError:
        raise DiagnoseError(
            "joserfc is missing, which reads signed tokens", where="--sign-in", remedy="pip install 'diagnose-train[sign-in]'"
        ) from None
