"""The viewer of the pages: a token in a cookie that scripts cannot read, and forms that only our own pages can send."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from service.auth import Who, admit, known_sender
from service.errors import Forbidden, Unauthorised
from service.runtime import Service
from service.sign_in.people import ON_THE_WAY_S, Arrived, People

COOKIE = "diagnose"
_ON_THE_WAY = "diagnose-on-the-way"
_THERE = "sign-in"
_DAYS = 30
_LONGEST = 4000


class SignInFirst(Exception):
    """This page needs a signed-in viewer."""


def viewer(request: Request) -> Who:
    """The viewer, whose token was met when they signed in. Raises SignInFirst if nobody is signed in."""
    try:
        who = known_sender(request, _header(request))
    except Unauthorised:
        raise SignInFirst from None
    admit(request)
    if "read" not in who.may:
        raise Forbidden(f"the token {who.name!r} may not read", remedy="sign in with a token that has the role read")
    return who


def _header(request: Request) -> str | None:
    secret = request.cookies.get(COOKIE)
    return f"Bearer {secret}" if secret else request.headers.get("authorization")


def known_by_name(who: Who) -> bool:
    """Whether there is somebody to sign out."""
    return not who.anybody


async def signed_in(request: Request, secret: str, target: str) -> Response:
    """Redirect to where the viewer wanted to go, with the cookie. Raises Unauthorised for a wrong token."""
    service: Service = request.app.state.service
    await service.tokens.meet(f"Bearer {secret.strip()}")
    service.tokens.who(f"Bearer {secret.strip()}")
    answer = RedirectResponse(inside(request, target), status_code=303)
    _keep(request, answer, COOKIE, secret.strip(), _DAYS * 86400, _home(request), "strict")
    return answer


def signed_out(request: Request) -> Response:
    service: Service = request.app.state.service
    if service.sign_in.sessions is not None:
        service.sign_in.sessions.end(request.cookies.get(COOKIE, ""))
    answer = RedirectResponse(inside(request, "sign-in"), status_code=303)
    answer.delete_cookie(COOKIE, path=_home(request))
    return answer


def sent_out(request: Request, people: People, target: str) -> Response:
    """Redirect to the provider where people sign in. The cookie must come back from there, so it is a lax one."""
    begun = people.begin(f"{_shown_at(request)}/{_THERE}/back", target)
    answer = RedirectResponse(begun.address, status_code=303)
    _keep(request, answer, _ON_THE_WAY, begun.cookie, ON_THE_WAY_S, f"{_home(request)}/{_THERE}", "lax")
    return answer


async def came_back(request: Request, people: People) -> tuple[Arrived, Callable[[Response], None]]:
    """(who came back from the provider, what adds the session's cookie to an answer)."""
    said = {name: value for name, value in request.query_params.items() if len(value) <= _LONGEST}
    arrived = await people.arrive(said, request.cookies.get(_ON_THE_WAY))

    def keep(answer: Response) -> None:
        answer.delete_cookie(_ON_THE_WAY, path=f"{_home(request)}/{_THERE}")
        _keep(request, answer, COOKIE, arrived.secret, int(arrived.lasts_s), _home(request), "strict")

    return arrived, keep


def _keep(
    request: Request, answer: Response, name: str, value: str, age_s: int, path: str, samesite: Literal["lax", "strict"]
) -> None:
    secure = _shown_at(request).startswith("https:")
    answer.set_cookie(name, value, max_age=age_s, path=path, secure=secure, httponly=True, samesite=samesite)


def _home(request: Request) -> str:
    return request.scope.get("root_path", "") or "/"


def _shown_at(request: Request) -> str:
    """Where browsers find the pages. ``Host`` was checked before."""
    service: Service = request.app.state.service
    base = service.settings.public_url or str(request.base_url).removesuffix("/").removesuffix("/ui")
    return f"{base}/ui"


def inside(request: Request, target: str) -> str:
    """``target`` as an address of the dashboard. Any other address becomes the overview."""
    prefix = request.scope.get("root_path", "")
    parts = urlsplit(target)
    if parts.scheme or parts.netloc or target.startswith(("/", "\\")) or "\\" in target:
        return f"{prefix}/"
    return f"{prefix}/{quote(parts.path)}" + (f"?{parts.query}" if parts.query else "")


# --- forms ------------------------------------------------------------------------------------------------------------------


def key_in(folder: Path) -> bytes:
    """The key that signs forms. It is made once, so that a page that was open during a restart still works."""
    path = folder / "forms.key"
    try:
        return path.read_bytes()
    except FileNotFoundError:
        key = secrets.token_bytes(32)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key)
        return key


def form_word(request: Request) -> str:
    """The word that a form must send back. Only somebody who can read our pages knows it."""
    key: bytes = request.app.state.key
    return hmac.new(key, request.cookies.get(COOKIE, "").encode(), hashlib.sha256).hexdigest()[:40]


def check_form(request: Request, given: object) -> None:
    """Forbidden unless one of our own pages sent the form."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Forbidden("the form was sent from another site", remedy="use the page itself")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), form_word(request).encode()):
        raise Forbidden(
            "the form is not valid, or not valid any more", remedy="go back, load the page again, and send it once more"
        )
