"""deploy/ on a real API server: what the chart and the manifests make is taken, and gives the rights that it should only.

docs/kubernetes.md says how the server is built. It runs no pods.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from service.errors import Unauthorised
from service.projects import Grant
from service.sign_in import access
from service.sign_in.accounts import Accounts
from tests.project.test_deploy import DEPLOY, FULL, rendered
from tests.support import kubernetes_real as real

pytestmark = [
    pytest.mark.server,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not real.available(), reason="no API server was built: tests/support/kubernetes_build.sh"),
]
NAMESPACES = ("ops", "ml", "vision", "other", "diagnose")
ACCOUNT = "system:serviceaccount:ops:trains"
SIGN_IN = """
accounts:
  - issuer: https://kubernetes.default.svc
    audience: diagnose
    keys: {url}/openid/v1/jwks
    ca: {ca}
    token_file: {token}
    allow:
      - {{account: 'vision/*', role: ingest, projects: [vision], own_namespace: true}}
"""


class Api:
    """The server, by its own description of itself."""

    def __init__(self, server: real.Real) -> None:
        self.server = server
        tls = ssl.create_default_context(cafile=str(server.ca))
        self.client = httpx.Client(base_url=server.url, verify=tls, headers={"authorization": "Bearer admin"}, timeout=30)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.client.post(path, json=body)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def _place(self, document: dict[str, Any]) -> str:
        version = document["apiVersion"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        known = self.client.get(base).json()["resources"]
        (kind,) = (one for one in known if one["kind"] == document["kind"] and "/" not in one["name"])
        inside = f"/namespaces/{document['metadata'].get('namespace', 'default')}" if kind["namespaced"] else ""
        return f"{base}{inside}/{kind['name']}/{document['metadata']['name']}"

    def apply(self, document: dict[str, Any]) -> str:
        """As ``kubectl apply --server-side`` does: a field that the server does not know is refused. Returns its version."""
        answer = self.client.patch(
            self._place(document),
            content=json.dumps(document),
            params={"fieldManager": "test", "force": "true"},
            headers={"content-type": "application/apply-patch+yaml"},
        )
        assert answer.status_code in (200, 201), (document["kind"], document["metadata"]["name"], answer.text)
        return str(answer.json()["metadata"]["resourceVersion"])

    def install(self, documents: list[dict[str, Any]]) -> list[str]:
        """As a new release: the volumes of a StatefulSet cannot be changed, so one that is there goes first."""
        for one in documents:
            if one["kind"] == "StatefulSet":
                assert self.client.delete(self._place(one)).status_code in (200, 404)
        return [self.apply(one) for one in documents]

    def may(self, account: str, verb: str, resource: str, namespace: str = "", group: str = "") -> bool:
        wanted = {"verb": verb, "resource": resource, "namespace": namespace, "group": group}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": account, "resourceAttributes": wanted},
        }
        return bool(self.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"]["allowed"])


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    server = real.Real()
    try:
        made = Api(server)
        for name in NAMESPACES:
            made.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield made
    finally:
        server.stop()


@pytest.mark.parametrize("values", [None, FULL], ids=["as-it-comes", "full"])
def test_the_chart_is_taken_and_a_second_time_changes_nothing(api: Api, values: dict[str, Any] | None) -> None:
    documents = rendered(values)
    first = api.install(documents)
    assert [api.apply(one) for one in documents] == first


@pytest.mark.parametrize("name", ["diagnose.yaml", "executor.yaml", "network-policies.yaml"])
def test_the_manifests_are_taken(api: Api, name: str) -> None:
    """The example of a job is newer than this server: indexed jobs came with 1.24."""
    for document in yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()):
        api.apply(document)


def test_a_field_that_nobody_knows_would_be_noticed(api: Api) -> None:
    (one,) = (one for one in rendered(None) if one["kind"] == "StatefulSet")
    one["spec"]["template"]["spec"]["containers"][0]["comand"] = ["x"]
    with pytest.raises(AssertionError, match="comand"):
        api.apply(one)


def test_the_chart_gives_the_rights_to_act_in_its_namespaces_and_nowhere_else(api: Api) -> None:
    api.install(rendered(FULL))
    for namespace in ("ml", "vision"):
        for verb in ("get", "create", "patch", "delete"):
            assert api.may(ACCOUNT, verb, "jobs", namespace, "batch"), (namespace, verb)
    assert api.may(ACCOUNT, "patch", "nodes")
    assert api.may(ACCOUNT, "create", "configmaps", "ops")
    for wanted in (
        ("delete", "jobs", "other", "batch"),
        ("list", "jobs", "ml", "batch"),
        ("delete", "nodes"),
        ("delete", "pods", "ml"),
        ("create", "pods", "ml"),
        ("get", "secrets", "ml"),
        ("get", "secrets", "ops"),
        ("get", "configmaps", "ml"),
        ("create", "rolebindings", "ml", "rbac.authorization.k8s.io"),
        ("impersonate", "users"),
    ):
        assert not api.may(ACCOUNT, *wanted), wanted
    assert not api.may("system:serviceaccount:other:trains", "patch", "nodes")


def test_a_token_that_the_server_signed_for_us_lets_its_account_in(api: Api, tmp_path: Path) -> None:
    api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trainer", "namespace": "vision"}})

    def token(audience: str) -> str:
        spec = {"audiences": [audience], "expirationSeconds": 3600}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = api.post("/api/v1/namespaces/vision/serviceaccounts/trainer/token", body)
        return str(answer["status"]["token"])

    (tmp_path / "token").write_text("admin")
    text = SIGN_IN.format(url=api.server.url, ca=api.server.ca, token=tmp_path / "token")
    (tmp_path / "sign-in.yaml").write_text(text)
    accounts = Accounts(access.load(tmp_path / "sign-in.yaml").clusters)
    asyncio.run(accounts.refresh())
    who = accounts.who(token("diagnose"))
    assert who is not None
    grant = Grant(projects=("vision",), namespaces=("vision",))
    assert (who.name, who.grant) == ("system:serviceaccount:vision:trainer", grant)
    for other in (token("another"), re.sub(r"\.[^.]+$", ".AAAA", token("diagnose"))):
        with pytest.raises(Unauthorised):
            accounts.who(other)
