"""deploy/ on a real API server: what the chart and the manifests make is taken, and gives the rights that it should only.

docs/kubernetes.md says how the server is built. It runs no pods. The quickstart of docs/start.md is typed against one, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from service.errors import Unauthorised
from service.projects import Grant
from service.sign_in import access
from service.sign_in.accounts import Accounts
from tests.conftest import ROOT
from tests.project.test_deploy import DEPLOY, FULL, rendered
from tests.project.test_quickstarts import lines_of
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
        """As ``kubectl apply --server-side`` does: a field that the server does not know is refused. Returns what is there
        then, but for its version and the times of who manages it: those of this server move with each second.
        """
        answer = self.client.patch(
            self._place(document),
            content=json.dumps(document),
            params={"fieldManager": "test", "force": "true"},
            headers={"content-type": "application/apply-patch+yaml"},
        )
        assert answer.status_code in (200, 201), (document["kind"], document["metadata"]["name"], answer.text)
        there = answer.json()
        for name in ("resourceVersion", "managedFields"):
            there["metadata"].pop(name, None)
        return json.dumps(there, sort_keys=True)

    def install(self, documents: list[dict[str, Any]]) -> list[str]:
        """As a new release: the volumes of a StatefulSet cannot be changed, so one that is there goes first."""
        for one in documents:
            if one["kind"] == "StatefulSet":
                assert self.client.delete(self._place(one)).status_code in (200, 404)
        return [self.apply(one) for one in documents]

    def may(self, account: str, verb: str, resource: str, namespace: str = "", group: str = "") -> bool:
        resource, _, part = resource.partition("/")
        wanted = {"verb": verb, "resource": resource, "subresource": part, "namespace": namespace, "group": group}
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


@pytest.mark.parametrize(
    "name", ["diagnose.yaml", "executor.yaml", "executor-conditions.yaml", "executor-holds.yaml", "network-policies.yaml"]
)
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
    assert api.may(ACCOUNT, "patch", "nodes/status")
    assert api.may(ACCOUNT, "patch", "pods/status", "ml")
    assert api.may(ACCOUNT, "patch", "workloads", "vision", "kueue.x-k8s.io")
    for wanted in (
        ("delete", "jobs", "other", "batch"),
        ("list", "jobs", "ml", "batch"),
        ("delete", "nodes"),
        ("update", "nodes/status"),
        ("patch", "pods", "ml"),
        ("patch", "pods/status", "other"),
        ("delete", "workloads", "ml", "kueue.x-k8s.io"),
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


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.timeout(400)
def test_the_quickstart_goes_as_far_as_it_can_without_nodes(tmp_path: Path) -> None:
    """The lines of docs/start.md. What a node would run then, a ``Node`` runs as the server gives it."""
    install, token, secret, job, forward = lines_of("Kubernetes")
    apply, rollout = install.split(" && ")
    (tmp_path / "deploy").symlink_to(DEPLOY)
    data = tmp_path / "volumes" / "diagnose-0" / "data"
    server = real.Real("job,garbagecollector,statefulset")
    node = Node(server, tmp_path)
    try:
        assert "statefulset.apps/diagnose created" in node.typed(apply)
        (service,) = node.pods("diagnose", 1)
        assert "Waiting for 1 pods to be ready" in node.typed(f"{rollout} --timeout=2s", fails=True)
        # Both lines find the pod. It has no node to be asked.
        assert "pod diagnose-0 does not have a host assigned" in node.typed(token, fails=True)
        assert "pod is not running. Current status=Pending" in node.typed(forward, fails=True)

        assert node.ran(service, "initContainers").wait(60) == 0
        assert (data / "shippers.token").stat().st_mode & 0o077 == 0
        node.typed(token.split(" -- ")[1].replace("/data", str(data)))
        assert "secret/diagnose-ingest created" in node.typed(secret)
        # Indexed jobs came with 1.24: this server does not know the field, and leaves it out.
        assert "job.batch/llama-7b created" in node.typed(f"{job} --validate=false")

        node.ran(service)
        look = node.typed(f"diagnose tokens create look --data {data} --role read").split()[0]
        client = httpx.Client(base_url=node.url, headers={"authorization": f"Bearer {look}"}, timeout=30)
        eventually(lambda: client.get("/readyz").status_code == 200)
        assert [node.ran(one).wait(60) for one in node.pods("ml", 2)] == [1, 1], "the runner ends as the training does"
        # No pod alone knows that the job has ended: whoever does, tells it with a token that may.
        mine = {"authorization": f"Bearer {(tmp_path / 'token').read_text().strip()}"}
        assert client.post("/v1/jobs/ml.llama-7b/end", json={"exit_code": 1}, headers=mine).status_code == 200
        eventually(lambda: client.get("/v1/jobs/ml.llama-7b/report").json()["diagnosis"]["reason"] == "key_error")
        told = client.get("/v1/jobs/ml.llama-7b").json()
        assert (told["outcome"], len(told["attempts"])) == ("failed", 1), "both pods are one run"
    finally:
        node.stop()
        server.stop()


class Node:
    """A shell with ``kubectl``, and what of a node this takes: fields, secrets and volumes become variables and files."""

    def __init__(self, server: real.Real, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "KUBECONFIG": str(server.kubeconfig), "PYTHONPATH": str(ROOT)}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"

    def typed(self, line: str, fails: bool = False) -> str:
        done = subprocess.run(
            ["bash", "-c", line], cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=120
        )
        assert (done.returncode != 0) == fails, (line, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def pods(self, namespace: str, count: int) -> list[dict[str, Any]]:
        def there() -> list[dict[str, Any]]:
            return list(json.loads(self.typed(f"kubectl -n {namespace} get pods -o json"))["items"])

        eventually(lambda: len(there()) == count)
        return there()

    def ran(self, pod: dict[str, Any], which: str = "containers") -> subprocess.Popen[bytes]:
        """The one container of a pod, with our training in place of torchrun."""
        (container,) = pod["spec"][which]
        volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
        places: dict[str, str] = {}
        for mount in container.get("volumeMounts", ()):
            place = self._folder / "volumes" / pod["metadata"]["name"] / mount["name"]
            place.mkdir(parents=True, exist_ok=True)
            places[mount["mountPath"]] = str(place)
            if "secret" in volumes.get(mount["name"], {}):
                name = volumes[mount["name"]]["secret"]["secretName"]
                words = f"kubectl -n {pod['metadata']['namespace']} get secret {name} -o json"
                for key, value in json.loads(self.typed(words))["data"].items():
                    (place / key).write_bytes(b64decode(value))
        known = {one["name"]: one.get("value") or self._field(pod, one) for one in container.get("env", ())}

        def here(word: str) -> str:
            for name, value in known.items():
                word = word.replace(f"$({name})", value)
            for inside, place in places.items():
                word = re.sub(rf"(?<![\w.]){inside}(?=/|$|\s)", place, word)
            return {"8321": self.url.rpartition(":")[2], "torchrun": sys.executable}.get(word, word)

        words = [
            here(word) for word in (*container["command"], *container.get("args", ())) if not re.match("--n(nodes|proc)", word)
        ]
        (self._folder / "train.py").write_text('print("step 1 loss 2.5", flush=True)\n{}["shard"]\n')
        more = {name: here(value) for name, value in known.items()}
        if "DIAGNOSE_URL" in more:
            more["DIAGNOSE_URL"] = self.url
        self._running.append(subprocess.Popen(words, cwd=self._folder, env={**self._environment, **more}))
        return self._running[-1]

    def _field(self, pod: dict[str, Any], variable: dict[str, Any]) -> str:
        path = variable["valueFrom"]["fieldRef"]["fieldPath"]
        label = re.fullmatch(r"metadata\.labels\['(.+)'\]", path)
        return str(pod["metadata"]["labels"][label[1]] if label else pod["metadata"][path.removeprefix("metadata.")])

    def stop(self) -> None:
        for one in self._running:
            one.kill()
            one.wait()


def eventually(holds: Callable[[], bool], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while True:
        with contextlib.suppress(httpx.TransportError, KeyError):
            if holds():
                return
        assert time.monotonic() < deadline
        time.sleep(0.3)
