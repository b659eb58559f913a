"""The viewer of the pages: a token in a cookie that scripts cannot read, and forms that only our own pages can send."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from service.auth import Who, admit, sender
from service.errors import Forbidden, Unauthorised
from service.runtime import Service

COOKIE = "diagnose"
_DAYS = 30


class SignInFirst(Exception):
    """This page needs a signed-in viewer."""


def viewer(request: Request) -> Who:
    """The viewer. Raises SignInFirst if nobody is signed in."""
    try:
        who = sender(request, _header(request))
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


def signed_in(request: Request, secret: str, target: str) -> Response:
    """Redirect to where the viewer wanted to go, with the cookie. Raises Unauthorised for a wrong token."""
    service: Service = request.app.state.service
    service.tokens.who(f"Bearer {secret.strip()}")
    answer = RedirectResponse(inside(request, target), status_code=303)
    answer.set_cookie(
        COOKIE,
        secret.strip(),
        max_age=_DAYS * 86400,
        path=request.scope.get("root_path", "") or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return answer


def signed_out(request: Request) -> Response:
    answer = RedirectResponse(inside(request, "sign-in"), status_code=303)
    answer.delete_cookie(COOKIE, path=request.scope.get("root_path", "") or "/")
    return answer


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
