"""An issuer of signed tokens that can also lie: for what a real provider never says. ``oidc-provider.mjs`` is a real one."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

SECRET = "s3cret+of:the/client"


@dataclass
class Lies:
    """In what it does not say the truth."""

    claims: dict[str, Any] = field(default_factory=dict)
    """said in place of the true ones; None: not said"""
    by: ECKey | None = None
    """signed with another key"""
    userinfo: dict[str, Any] = field(default_factory=dict)
    issuer: str | None = None


class Provider:
    """Signs whoever comes in as ``person``. It checks PKCE, the client and the address, and takes a code once."""

    def __init__(self, person: dict[str, Any] | None = None) -> None:
        self.person = person or {"sub": "1", "email": "kim@example.org", "groups": ["ml"]}
        self.lies = Lies()
        self.key = ECKey.generate_key("P-256", {"use": "sig", "kid": "first", "alg": "ES256"})
        self.asked: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked.append(self.path)
                status, value = provider.get(self.path, self.headers.get("authorization", ""))
                if self.path == "/keys" and "application/jwk-set+json" not in self.headers.get("accept", ""):
                    status, value = 406, {}  # as Kubernetes does
                self._answer(status, value)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                fields = {name: values[0] for name, values in parse_qs(body).items()}
                self._answer(*provider.exchange(fields, self.headers.get("authorization", "")))

            def _answer(self, status: int, value: Any) -> None:
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def get(self, path: str, shown: str) -> tuple[int, Any]:
        if path == "/.well-known/openid-configuration":
            return 200, {
                "issuer": self.lies.issuer or self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "userinfo_endpoint": f"{self.url}/me",
                "jwks_uri": f"{self.url}/keys",
            }
        if path == "/keys":
            return 200, KeySet([self.key]).as_dict(private=False)
        if path == "/me" and shown == "Bearer access":
            return 200, {"sub": self.person["sub"], **self.person, **self.lies.userinfo}
        return 404, {}

    def visit(self, address: str) -> dict[str, str]:
        """A browser comes with this address -> what it is sent back with."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert asked["client_id"] == "diagnose"
        code = f"code{len(self._codes)}"
        self._codes[code] = asked
        return {"code": code, "state": asked["state"]}

    def exchange(self, fields: dict[str, str], shown: str) -> tuple[int, Any]:
        asked = self._codes.pop(fields.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(fields["code_verifier"].encode()).digest()).decode().rstrip("=")
        client = base64.b64encode(b"diagnose:s3cret%2Bof%3Athe%2Fclient").decode()
        if asked is None or shown != f"Basic {client}":
            return 400, {"error": "invalid_grant"}
        if challenge != asked["code_challenge"] or fields["redirect_uri"] != asked["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        return 200, {"access_token": "access", "token_type": "Bearer", "id_token": self.token(nonce=asked["nonce"])}

    def token(self, **claims: Any) -> str:
        """A signed token."""
        now = int(time.time())
        said = {"iss": self.url, "aud": "diagnose", "iat": now, "exp": now + 300, "sub": self.person["sub"], **claims}
        said = {name: value for name, value in {**said, **self.lies.claims}.items() if value is not None}
        key = self.lies.by or self.key
        return jwt.encode({"alg": "ES256", "kid": "first"}, said, key)
