"""The Kubernetes executor: what it does, once, and what it says when it cannot.

No package that CI can install holds a kube-apiserver, so these run against a fake (``tests/support/kubernetes_fake.py``) that
holds every request to the published OpenAPI; and against a real kube-apiserver, etcd and controllers where DIAGNOSE_KUBERNETES
names them. What only a fake can be made to do (time-outs, 429, others who are quicker in between) is tested on the fake alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from diagnose.errors import DiagnoseError
from service.acting.executors.claim import Claim, Confirmed, Unconfirmed
from service.acting.executors.configuration import load
from service.acting.executors.executor import Order, Outcome
from service.acting.executors.kubernetes import Kubernetes, Settings
from service.acting.executors.kubernetes_nodes import Ways
from service.projects import NOBODY, Grant
from tests.conftest import ROOT, Run
from tests.service.acting.test_dispatch import CANCELLED, wait
from tests.support import kubernetes_real as real
from tests.support.kubernetes_fake import Fake, Fault, Refused
from tests.support.servers import Server

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]
KEY = "0123456789abcdef0123456789abcdef"
JOBS = "/apis/batch/v1/namespaces/ml/jobs"
PYTORCH = "/apis/kubeflow.org/v1/namespaces/ml/pytorchjobs"
VOLCANO = "/apis/batch.volcano.sh/v1alpha1/namespaces/ml/jobs"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets"
TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ml/trainjobs"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/namespaces/ml/workloads"
NOTES = "/api/v1/namespaces/diagnose/configmaps"
PODS = "/api/v1/namespaces/ml/pods"
POD = {
    "metadata": {"labels": {"team": "a"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "train", "image": "registry.example/llama:1"}]},
}
NOT_ON = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["gpu-1.local"]}
Object = dict[str, Any]
CORDON_AND_TAINT = Ways()
OURS = "example.com/DiagnoseIsolated"
"""a condition"""


class Cluster:
    """A server as its administrator sees it, and the executor's way to it."""

    def __init__(self, server: Fake | real.Real, token: Path) -> None:
        self.server, self.token = server, token
        self.ca = server.ca
        self._tls = ssl.create_default_context(cafile=str(self.ca)) if self.ca else None
        self.hook: Callable[[], Any] | None = None
        """what happens in the cluster while the executor waits"""

    def send(self, method: str, path: str, body: Any = None) -> tuple[int, Object]:
        content = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.server.url + path, content, {"Authorization": "Bearer admin"}, method=method)
        request.add_header("Content-Type", "application/merge-patch+json" if method == "PATCH" else "application/json")
        try:
            with urllib.request.urlopen(request, timeout=20, context=self._tls) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def make(self, path: str, body: Object) -> Object:
        code, said = self.send("POST", path, body)
        assert code == 201, said
        return said

    def get(self, path: str) -> Object | None:
        code, said = self.send("GET", path)
        assert code in (200, 404), said
        return said if code == 200 else None

    def there(self, path: str) -> Object:
        found = self.get(path)
        assert found is not None, path
        return found

    def patch(self, path: str, body: Object) -> Object:
        for _ in range(20):  # controllers write too
            seen = self.there(path.removesuffix("/status"))
            version = {"metadata": {"resourceVersion": seen["metadata"]["resourceVersion"]}}
            code, said = self.send("PATCH", path, {**body, "metadata": {**body.get("metadata", {}), **version["metadata"]}})
            if code != 409:
                break
        assert code == 200, said
        return said

    def status(self, path: str, status: Object) -> None:
        self.patch(f"{path}/status", {"status": status})

    def end(self, path: str, kind: str = "Failed") -> None:
        """What its controller would say."""
        self.status(path, {"conditions": [{"type": kind, "status": "True"}], "active": 0})

    def node(self, name: str, **spec: Any) -> None:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}
        body["metadata"]["labels"] = {"kubernetes.io/hostname": f"{name}.local"}
        self.make("/api/v1/nodes", body)

    def pod(self, name: str, node: str | None, labels: Object, namespace: str = "ml") -> None:
        """One that a controller has made and the scheduler has bound."""
        spec = {**POD["spec"], **({"nodeName": node} if node else {})}
        metadata = {"name": name, "labels": labels}
        self.make(
            f"/api/v1/namespaces/{namespace}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )

    def executor(
        self, *, ways: Ways = CORDON_AND_TAINT, hold: bool = False, now: Callable[[], float] = time.time, **more: Any
    ) -> Kubernetes:
        settings = {"namespaces": ("ml",), "timeout_s": 10.0, "patience_s": 5.0, **more}
        found = Settings(self.server.url, ca=self.ca, token_file=self.token, **settings)
        return Kubernetes(found, ways, hold=hold, sleep=self._sleep, now=now)

    async def _sleep(self, seconds: float) -> None:
        if self.hook is not None:
            await asyncio.to_thread(self.hook)
        await asyncio.sleep(min(seconds, 0.05))

    def carry_out(self, order: Order, *, by: Kubernetes | None = None, dry_run: bool = False) -> Outcome:
        return asyncio.run((by or self.executor()).carry_out(order, dry_run=dry_run))

    def clean(self) -> None:
        """Until nothing is left: controllers take their time."""
        self.hook = None
        kinds = (TRAINJOBS, JOBSETS, PYTORCH, VOLCANO, JOBS, PODS, WORKLOADS)
        paths = (*kinds, *(path.replace("/ml/", "/lab/") for path in kinds), "/api/v1/nodes")
        notes = [f"{NOTES}/{one}" for one in self._listed(NOTES) if one.startswith("restart-")]
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background", "gracePeriodSeconds": 0}
        for here in [*(f"{path}/{one}" for path in paths for one in self._listed(path)), *notes]:
            for _ in range(200):
                self.send("DELETE", here, options)
                found = self.get(here)
                if found is None:
                    break
                if found["metadata"].get("finalizers"):
                    self.send("PATCH", here, {"metadata": {"finalizers": None}})
            else:
                raise AssertionError(f"{here} stays")

    def _listed(self, path: str) -> list[str]:
        found: list[str] = []
        page: str | None = ""
        while page is not None:
            listed = self.send("GET", f"{path}?continue={page}" if page else path)[1]
            found += [one["metadata"]["name"] for one in listed.get("items") or []]
            page = listed["metadata"].get("continue") or None
        return found


RIGHTS = ("executor.yaml", "executor-conditions.yaml", "executor-holds.yaml")


def furnish(cluster: Cluster, rights: tuple[str, ...] = RIGHTS) -> None:
    """Namespaces, and the rights that deploy/ gives."""
    for name in ("ml", "lab", "diagnose", "other"):
        cluster.make("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for one in (one for name in rights for one in yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / name).read_text())):
        where = f"/namespaces/{one['metadata']['namespace']}" if "namespace" in one["metadata"] else ""
        cluster.make(f"/apis/rbac.authorization.k8s.io/v1{where}/{one['kind'].lower()}s", one)
        if where == "/namespaces/ml":  # "one for each namespace"
            one["metadata"]["namespace"] = "lab"
            cluster.make(f"/apis/rbac.authorization.k8s.io/v1/namespaces/lab/{one['kind'].lower()}s", one)


@pytest.fixture(scope="module", params=["fake", *(["real"] if real.available() else [])])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text("diagnose\n")
    begun = Fake(tokens={"diagnose": "system:serviceaccount:diagnose:diagnose"}) if request.param == "fake" else real.Real()
    try:
        cluster = Cluster(begun, token)
        furnish(cluster)
        for _ in range(100):  # a real server takes a while to know a role
            if not asyncio.run(cluster.executor().check()):
                break
            time.sleep(0.1)
        yield cluster
    finally:
        begun.stop()


@pytest.fixture
def cluster(server: Cluster) -> Iterator[Cluster]:
    for name in ("gpu-1", "gpu-2"):
        server.node(name)
    yield server
    server.clean()


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[tuple[Cluster, Fake]]:
    begun = Fake(tokens={"diagnose": "system:serviceaccount:diagnose:diagnose"})
    token = tmp_path / "token"
    token.write_text("diagnose")
    cluster = Cluster(begun, token)
    try:
        furnish(cluster)
        cluster.node("gpu-1")
        yield cluster, begun
    finally:
        begun.stop()


def job(name: str = "llama", **spec: Any) -> Object:
    body = {"backoffLimit": 0, "template": POD, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "annotations": {"owner": "ann"}}, "spec": body}


def pytorch(name: str = "llama") -> Object:
    replicas = {role: {"replicas": 1, "restartPolicy": "Never", "template": POD} for role in ("Master", "Worker")}
    spec = {"pytorchReplicaSpecs": replicas, "runPolicy": {"cleanPodPolicy": "Running"}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}


def volcano(name: str = "llama") -> Object:
    spec = {"minAvailable": 1, "schedulerName": "volcano", "tasks": [{"name": "worker", "replicas": 1, "template": POD}]}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def jobset(name: str = "llama", owner: Object | None = None) -> Object:
    replicated = [{"name": "node", "replicas": 1, "template": {"spec": {"template": POD}}}]
    metadata: Object = {"name": name}
    if owner is not None:
        whose = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        metadata["ownerReferences"] = [{**whose, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": replicated},
    }


def trainjob(name: str = "llama") -> Object:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "torch-distributed"}},
    }


def restart(**more: Any) -> Order:
    return Order(KEY, "restart", "ml.llama", 1, **{"why": "Xid 79", **more})


def uid(thing: Object) -> str:
    return str(thing["metadata"]["uid"])


def by_us(thing: Object) -> str | None:
    found: str | None = thing["metadata"].get("annotations", {}).get("diagnose/restarted-by")
    return found


def tainted(cluster: Cluster, name: str) -> bool:
    taints = cluster.there(f"/api/v1/nodes/{name}").get("spec", {}).get("taints", [])  # the server has some of its own
    return any(one["key"] == "diagnose/isolated" for one in taints)


# --- nodes


def test_a_node_is_cordoned_tainted_and_annotated(cluster: Cluster) -> None:
    outcome = cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1",), why="Xid 79 \x1b[31mon gpu-1\n<b>"))

    node = cluster.there("/api/v1/nodes/gpu-1")
    assert (outcome.state, outcome.what) == ("succeeded", "cordoned and tainted gpu-1")
    assert node["spec"]["unschedulable"] is True
    assert {"key": "diagnose/isolated", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["metadata"]["annotations"]["diagnose/isolated-by"] == KEY
    assert node["metadata"]["annotations"]["diagnose/isolated-why"] == f"diagnose {KEY}: Xid 79 [31mon gpu-1 <b>"
    assert not tainted(cluster, "gpu-2")


def test_the_same_isolation_twice_is_done_once(cluster: Cluster) -> None:
    order = Order(KEY, "isolate", nodes=("gpu-1",), why="ECC")
    cluster.carry_out(order)
    version = cluster.there("/api/v1/nodes/gpu-1")["metadata"]["resourceVersion"]

    again, other = cluster.carry_out(order), cluster.carry_out(Order("f" * 32, "isolate", nodes=("gpu-1",), why="late"))

    assert again.what == "gpu-1 was isolated by this order"
    assert other.what == f"gpu-1 was isolated before: 'diagnose {KEY}: ECC'"
    assert cluster.there("/api/v1/nodes/gpu-1")["metadata"]["resourceVersion"] == version


def test_what_others_put_on_a_node_stays(cluster: Cluster) -> None:
    others = {"key": "team", "value": "a", "effect": "NoExecute"}
    cluster.patch("/api/v1/nodes/gpu-1", {"spec": {"taints": [others]}, "metadata": {"annotations": {"note": "ask Bob"}}})
    cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1",)))

    outcome = cluster.carry_out(Order("e" * 32, "release", nodes=("gpu-1",)))

    node = cluster.there("/api/v1/nodes/gpu-1")
    assert outcome.what == "released gpu-1"
    assert [one for one in node["spec"]["taints"] if not one["key"].startswith("node.")] == [others]
    assert "unschedulable" not in node["spec"]
    assert {name: text for name, text in node["metadata"]["annotations"].items() if "/" not in name} == {"note": "ask Bob"}
    assert not any(name.startswith("diagnose/") for name in node["metadata"]["annotations"])


def test_a_cordon_of_others_is_not_lifted(cluster: Cluster) -> None:
    cluster.patch("/api/v1/nodes/gpu-1", {"spec": {"unschedulable": True}})

    before = cluster.carry_out(Order("d" * 32, "release", nodes=("gpu-1",)))
    isolated = cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1",)))
    cluster.carry_out(Order("e" * 32, "release", nodes=("gpu-1",)))

    node = cluster.there("/api/v1/nodes/gpu-1")
    assert (before.state, before.may_retry) == ("failed", False)
    assert "cordoned by others" in before.what
    assert isolated.what == "tainted the cordoned gpu-1"
    assert node["spec"]["unschedulable"] is True
    assert not tainted(cluster, "gpu-1")


# --- nodes, by what a site watches


def conditions(cluster: Cluster, name: str = "gpu-1") -> dict[str, Object]:
    listed = cluster.there(f"/api/v1/nodes/{name}").get("status", {}).get("conditions", [])
    return {one["type"]: one for one in listed}


def plain(node: Object) -> Object:
    """What of a node others would see change."""
    spec = {name: value for name, value in node.get("spec", {}).items() if name in ("unschedulable", "taints")}
    return {"spec": spec, **{name: node["metadata"].get(name) or {} for name in ("labels", "annotations")}}


def test_a_condition_tells_what_a_site_watches_and_goes_again(cluster: Cluster) -> None:
    others = {"type": "KernelDeadlock", "status": "False", "reason": "KernelHasNoDeadlock", "message": "fine"}
    cluster.status("/api/v1/nodes/gpu-1", {"conditions": [others]})
    before, executor = cluster.there("/api/v1/nodes/gpu-1"), cluster.executor(ways=Ways(False, False, condition=OURS))
    order = Order(KEY, "isolate", nodes=("gpu-1",), why="Xid 79")

    outcome = cluster.carry_out(order, by=executor)

    told = conditions(cluster)
    assert (outcome.state, outcome.what) == ("succeeded", f"set the condition {OURS} of gpu-1")
    assert (told[OURS]["status"], told[OURS]["reason"], told[OURS]["message"]) == (
        "True",
        "IsolatedByDiagnose",
        f"diagnose {KEY}: Xid 79",
    )
    assert told[OURS]["lastTransitionTime"] == told[OURS]["lastHeartbeatTime"]
    assert told["KernelDeadlock"]["reason"] == "KernelHasNoDeadlock"
    isolated = cluster.there("/api/v1/nodes/gpu-1")
    assert plain(isolated)["spec"] == plain(before)["spec"], "only the condition was asked for"
    assert cluster.carry_out(order, by=executor).what == "gpu-1 was isolated by this order"
    assert cluster.there("/api/v1/nodes/gpu-1")["metadata"]["resourceVersion"] == isolated["metadata"]["resourceVersion"]

    released = cluster.carry_out(Order("e" * 32, "release", nodes=("gpu-1",)))

    assert released.what == "released gpu-1"
    assert set(conditions(cluster)) == {"KernelDeadlock"}
    assert plain(cluster.there("/api/v1/nodes/gpu-1")) == plain(before)


def test_labels_are_set_and_become_what_they_were(cluster: Cluster) -> None:
    cluster.patch("/api/v1/nodes/gpu-1", {"metadata": {"labels": {"example.com/health": "ok"}}})
    before = cluster.there("/api/v1/nodes/gpu-1")
    ways = Ways(cordon=False, labels={"example.com/health": "broken", "example.com/repair": "true"})

    outcome = cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1",)), by=cluster.executor(ways=ways))

    node = cluster.there("/api/v1/nodes/gpu-1")
    assert outcome.what == "tainted and labelled gpu-1"
    assert {name: node["metadata"]["labels"].get(name) for name in ways.labels} == dict(ways.labels)
    assert "unschedulable" not in node["spec"]
    cluster.carry_out(Order("e" * 32, "release", nodes=("gpu-1",)))
    assert plain(cluster.there("/api/v1/nodes/gpu-1")) == plain(before)


def test_what_a_person_changed_meanwhile_stays_when_the_node_is_given_back(cluster: Cluster) -> None:
    ways = Ways(labels={"example.com/health": "broken", "example.com/repair": "true"}, condition=OURS)
    cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1",)), by=cluster.executor(ways=ways))
    cluster.patch("/api/v1/nodes/gpu-1", {"metadata": {"labels": {"example.com/health": "ask-Bob"}}})
    theirs = {"type": OURS, "status": "True", "reason": "BobSaysSo", "message": "do not touch"}
    cluster.status("/api/v1/nodes/gpu-1", {"conditions": [theirs]})

    cluster.carry_out(Order("e" * 32, "release", nodes=("gpu-1",)))

    labels = cluster.there("/api/v1/nodes/gpu-1")["metadata"]["labels"]
    assert (labels.get("example.com/health"), labels.get("example.com/repair")) == ("ask-Bob", None)
    assert conditions(cluster)[OURS]["reason"] == "BobSaysSo"


@pytest.mark.parametrize("status", ["False", "True"])
def test_a_condition_of_others_is_theirs_again(cluster: Cluster, status: str) -> None:
    theirs = {"type": OURS, "status": status, "reason": "Others", "message": "of a detector"}
    cluster.status("/api/v1/nodes/gpu-1", {"conditions": [theirs]})

    cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1",)), by=cluster.executor(ways=Ways(condition=OURS)))
    during = conditions(cluster)[OURS]
    cluster.carry_out(Order("e" * 32, "release", nodes=("gpu-1",)))

    assert during["reason"] == ("Others" if status == "True" else "IsolatedByDiagnose")
    assert theirs.items() <= conditions(cluster)[OURS].items()


def test_what_a_person_has_taken_back_can_be_isolated_again(cluster: Cluster) -> None:
    executor = cluster.executor(ways=Ways(False, False, {"example.com/broken": "true"}))
    cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1",)), by=executor)
    cluster.patch("/api/v1/nodes/gpu-1", {"metadata": {"labels": {"example.com/broken": None}}})

    outcome = cluster.carry_out(Order("e" * 32, "isolate", nodes=("gpu-1",)), by=executor)

    assert outcome.what == "labelled gpu-1"
    assert cluster.there("/api/v1/nodes/gpu-1")["metadata"]["annotations"]["diagnose/isolated-by"] == "e" * 32


def test_a_dry_run_of_a_condition_changes_nothing(cluster: Cluster) -> None:
    version = cluster.there("/api/v1/nodes/gpu-1")["metadata"]["resourceVersion"]
    executor = cluster.executor(ways=Ways(labels={"example.com/broken": "true"}, condition=OURS))

    outcome = cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1",)), by=executor, dry_run=True)

    assert outcome.what == f"would have: cordoned, tainted, labelled and set the condition {OURS} of gpu-1"
    assert cluster.there("/api/v1/nodes/gpu-1")["metadata"]["resourceVersion"] == version


def test_where_nothing_keeps_jobs_off_the_node_the_restart_does(cluster: Cluster) -> None:
    cluster.make(JOBS, job())
    cluster.end(f"{JOBS}/llama")
    order = Order(KEY, "isolate_and_restart", "ml.llama", 1, nodes=("gpu-1",))

    outcome = cluster.carry_out(order, by=cluster.executor(ways=Ways(False, False, condition=OURS)))

    affinity = cluster.there(f"{JOBS}/llama")["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [NOT_ON]
    assert "it goes without gpu-1.local" in outcome.what


def test_cut_off_before_the_condition_was_set_it_is_set_by_the_next_try(fake: tuple[Cluster, Fake]) -> None:
    cluster, server = fake
    order, executor = Order(KEY, "isolate", nodes=("gpu-1",)), cluster.executor(ways=Ways(condition=OURS))
    server.faults.append(Fault("PATCH", "/status", Refused(403, "Forbidden", "nodes cannot be patched")))

    first, between = cluster.carry_out(order, by=executor), conditions(cluster)
    second = cluster.carry_out(order, by=executor)

    assert (first.state, OURS in between) == ("failed", False)
    assert "nodes/status" in first.what
    assert (second.state, conditions(cluster)[OURS]["status"]) == ("succeeded", "True")


def test_the_kubelet_writes_the_status_in_between(fake: tuple[Cluster, Fake]) -> None:
    cluster, server = fake
    beat = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
    server.faults.append(Fault("PATCH", "/status", then=lambda: cluster.status("/api/v1/nodes/gpu-1", {"conditions": [beat]})))

    cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1",)), by=cluster.executor(ways=Ways(condition=OURS)))

    assert set(conditions(cluster)) == {"Ready", OURS}


def test_the_right_to_write_conditions_is_asked_for_only_where_it_is_used(tmp_path: Path) -> None:
    begun = Fake(tokens={"diagnose": "system:serviceaccount:diagnose:diagnose"})
    (tmp_path / "token").write_text("diagnose")
    cluster = Cluster(begun, tmp_path / "token")
    try:
        furnish(cluster, ("executor.yaml",))
        assert asyncio.run(cluster.executor().check()) == []
        (missing,) = asyncio.run(cluster.executor(ways=Ways(condition=OURS)).check())
    finally:
        begun.stop()
    assert missing.endswith('a role lacks {apiGroups: [""], resources: ["nodes/status"], verbs: ["patch"]}')


def test_a_node_that_is_in_service_needs_no_release(cluster: Cluster) -> None:
    assert cluster.carry_out(Order(KEY, "release", nodes=("gpu-1",))).what == "gpu-1 is in service already"


@pytest.mark.parametrize(
    "name", ["gpu-9", "gpu-[1-2]", "gpu-1,gpu-2", "", "../gpu-1", "gpu-1\n", "gpu-1/status", "GPU-1", "a?b"]
)
def test_a_name_out_of_a_log_takes_no_other_node_out(cluster: Cluster, name: str) -> None:
    outcome = cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1", name)))

    assert (outcome.state, outcome.may_retry) == ("failed", False)
    for node in ("gpu-1", "gpu-2"):
        assert "unschedulable" not in cluster.there(f"/api/v1/nodes/{node}").get("spec", {})


def test_a_dry_run_changes_nothing(cluster: Cluster) -> None:
    made = cluster.make(JOBS, job())
    cluster.end(f"{JOBS}/llama")
    version = cluster.there("/api/v1/nodes/gpu-1")["metadata"]["resourceVersion"]
    order = Order(KEY, "isolate_and_restart", "ml.llama", 1, nodes=("gpu-1",), avoid=("gpu-2",))

    told, set_so = cluster.carry_out(order, dry_run=True), cluster.carry_out(order, by=cluster.executor(dry_run=True))

    assert told == set_so
    assert told.what == (
        "would have: cordoned and tainted gpu-1; deleted Job ml/llama and made it anew; it goes without gpu-2.local"
    )
    assert cluster.there("/api/v1/nodes/gpu-1")["metadata"]["resourceVersion"] == version
    assert uid(cluster.there(f"{JOBS}/llama")) == uid(made)
    assert [one for one in cluster._listed(JOBS) if one != "llama"] == []
    assert [one for one in cluster._listed(NOTES) if one.startswith("restart-")] == []


# --- jobs


def kinds() -> list[Any]:
    return [
        pytest.param(JOBS, job, id="Job"),
        pytest.param(PYTORCH, pytorch, id="PyTorchJob"),
        pytest.param(VOLCANO, volcano, id="Volcano"),
        pytest.param(JOBSETS, jobset, id="JobSet"),
        pytest.param(TRAINJOBS, trainjob, id="TrainJob"),
    ]


@pytest.mark.parametrize(("path", "body"), kinds())
def test_a_job_that_failed_is_made_anew_once(cluster: Cluster, path: str, body: Callable[[], Object]) -> None:
    before = cluster.make(path, body())
    if path == VOLCANO:
        cluster.status(f"{path}/llama", {"state": {"phase": "Failed"}})
    else:
        cluster.end(f"{path}/llama")
    order = Order(KEY, "isolate_and_restart", "ml.llama", 1, nodes=("gpu-1",), why="Xid 79")

    outcome = cluster.carry_out(order)
    after = cluster.there(f"{path}/llama")
    again = cluster.carry_out(order)

    shown = f"{body()['kind']} ml/llama"
    assert outcome.state == "succeeded", outcome
    assert outcome.details == {"done": ["cordoned and tainted gpu-1", f"deleted {shown} and made it anew"]}
    assert uid(after) != uid(before)
    assert by_us(after) == KEY
    assert "Failed" not in json.dumps(after.get("status", {}))
    assert again.details == {"done": ["gpu-1 was isolated by this order", f"{shown} was restarted by this order"]}
    assert uid(cluster.there(f"{path}/llama")) == uid(after)
    assert [one for one in cluster._listed(NOTES) if one.startswith("restart-")] == []


def test_the_new_job_is_the_old_one(cluster: Cluster) -> None:
    before = cluster.make(JOBS, job(activeDeadlineSeconds=3600, completions=2, parallelism=2))
    cluster.end(f"{JOBS}/llama")

    cluster.carry_out(restart())

    after = cluster.there(f"{JOBS}/llama")
    for name in ("activeDeadlineSeconds", "completions", "parallelism", "backoffLimit"):
        assert after["spec"][name] == before["spec"][name]
    template = after["spec"]["template"]
    assert template["spec"] == before["spec"]["template"]["spec"]
    assert template["metadata"]["labels"]["team"] == "a"
    assert template["metadata"]["labels"]["controller-uid"] == uid(after)
    assert after["metadata"]["annotations"]["owner"] == "ann"
    assert after["metadata"]["annotations"]["diagnose/restarted-why"] == f"diagnose {KEY}: job ml.llama, attempt 1: Xid 79"


@pytest.mark.parametrize(
    ("path", "body", "way"),
    [
        pytest.param(PYTORCH, pytorch, ("runPolicy", "suspend"), id="PyTorchJob"),
        pytest.param(JOBSETS, jobset, ("suspend",), id="JobSet"),
    ],
)
def test_a_live_job_is_suspended_and_let_go(
    cluster: Cluster, path: str, body: Callable[[], Object], way: tuple[str, ...]
) -> None:
    before = cluster.make(path, body())
    cluster.status(f"{path}/llama", {"active": 2, "conditions": [{"type": "Suspended", "status": "False"}]})
    seen: list[Any] = []

    def controller() -> None:
        now = cluster.there(f"{path}/llama")
        seen.append((of(now, way), now["metadata"]["annotations"].get("diagnose/suspended-by")))
        if len(seen) <= 2:  # its pods take their time
            condition = {"type": "Suspended", "status": "True"}
            cluster.status(f"{path}/llama", {"active": 2 - len(seen), "conditions": [condition]})

    cluster.hook = controller
    outcome = cluster.carry_out(restart())

    after = cluster.there(f"{path}/llama")
    assert outcome.what == f"suspended {body()['kind']} ml/llama and let it go"
    assert seen == [(True, KEY)] * 2
    assert (uid(after), of(after, way)) == (uid(before), False)
    assert by_us(after) == KEY
    pods, were = templates(after["spec"]), templates(before["spec"])
    assert [one["metadata"]["labels"] for one in pods] == [{"team": "a", "diagnose/attempt": "2"}] * len(were)
    assert [one["spec"]["containers"] for one in pods] == [one["spec"]["containers"] for one in were]
    assert "diagnose/suspended-by" not in after["metadata"]["annotations"]
    assert cluster.carry_out(restart()).what == f"{body()['kind']} ml/llama was restarted by this order"


@pytest.mark.parametrize(
    ("path", "body"), [pytest.param(JOBS, job, id="Job"), pytest.param(TRAINJOBS, trainjob, id="TrainJob")]
)
def test_a_live_job_whose_pods_cannot_learn_their_attempt_is_made_anew(
    cluster: Cluster, path: str, body: Callable[[], Object]
) -> None:
    before = cluster.make(path, body())

    outcome = cluster.carry_out(restart())

    assert outcome.what == f"deleted {body()['kind']} ml/llama and made it anew"
    assert uid(cluster.there(f"{path}/llama")) != uid(before)


@pytest.mark.parametrize(("path", "body"), kinds())
def test_pods_learn_their_attempt(cluster: Cluster, path: str, body: Callable[[], Object]) -> None:
    cluster.make(path, body())
    if path != VOLCANO:
        cluster.end(f"{path}/llama")

    cluster.carry_out(restart())
    late = cluster.carry_out(Order("e" * 32, "restart", "ml.llama", 1))

    after = cluster.there(f"{path}/llama")
    assert {one["metadata"]["labels"].get("diagnose/attempt") for one in templates(after["spec"])} == {"2"}
    assert late.what == f"{body()['kind']} ml/llama was restarted since: it is at attempt 2"
    assert uid(cluster.there(f"{path}/llama")) == uid(after)


def templates(thing: Any) -> list[Object]:
    """Of pods, wherever they are."""
    inner = list(thing.values()) if isinstance(thing, dict) else thing if isinstance(thing, list) else []
    if isinstance(thing, dict) and "labels" in thing.get("metadata", {}):
        return [thing]
    return [one for part in inner for one in templates(part)]


def of(thing: Object, way: tuple[str, ...]) -> Any:
    found = thing["spec"]
    for step in way:
        found = found.get(step, {}) if step != way[-1] else found.get(step)
    return found


@pytest.mark.parametrize("key", [KEY, "f" * 32])
def test_cut_off_while_it_was_suspended_it_is_let_go(cluster: Cluster, key: str) -> None:
    cluster.make(PYTORCH, pytorch())
    notes = {"annotations": {"diagnose/suspended-by": key}}
    cluster.patch(f"{PYTORCH}/llama", {"spec": {"runPolicy": {"suspend": True}}, "metadata": notes})
    cluster.status(f"{PYTORCH}/llama", {"conditions": [{"type": "Suspended", "status": "True"}]})

    outcome = cluster.carry_out(restart())

    assert outcome.what == "suspended PyTorchJob ml/llama and let it go"
    assert cluster.there(f"{PYTORCH}/llama")["spec"]["runPolicy"]["suspend"] is False


def test_cut_off_while_it_was_suspended_what_somebody_let_go_is_left_alone(cluster: Cluster) -> None:
    body = pytorch()
    body["metadata"]["annotations"] = {"diagnose/suspended-by": KEY}
    body["spec"]["runPolicy"]["suspend"] = False
    before = cluster.make(PYTORCH, body)

    outcome = cluster.carry_out(restart())

    assert (outcome.state, "somebody let it go" in outcome.what) == ("succeeded", True), outcome
    assert cluster.there(f"{PYTORCH}/llama")["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_what_was_let_go_once_can_be_restarted_by_the_next_order(cluster: Cluster) -> None:
    """The mark of the order that was cut off is still on it, and says nothing of this one."""
    body = pytorch()
    body["metadata"]["annotations"] = {"diagnose/suspended-by": "f" * 32}
    body["spec"]["runPolicy"]["suspend"] = False
    before = cluster.make(PYTORCH, body)
    cluster.hook = lambda: cluster.status(f"{PYTORCH}/llama", {"conditions": [{"type": "Suspended", "status": "True"}]})

    outcome = cluster.carry_out(restart())

    after = cluster.there(f"{PYTORCH}/llama")
    assert outcome.what == "suspended PyTorchJob ml/llama and let it go"
    assert (uid(after), by_us(after), after["spec"]["runPolicy"]["suspend"]) == (uid(before), KEY, False)


def test_pods_that_do_not_end_leave_it_suspended_and_that_is_said(cluster: Cluster) -> None:
    cluster.make(PYTORCH, pytorch())

    outcome = cluster.carry_out(restart(), by=cluster.executor(patience_s=0.3))

    assert (outcome.state, outcome.may_retry) == ("unknown", True)
    assert "its pods have not ended in 0.3 s" in outcome.what
    cluster.status(f"{PYTORCH}/llama", {"conditions": [{"type": "Suspended", "status": "True"}]})
    assert cluster.carry_out(restart()).state == "succeeded"


def test_a_job_that_waits_in_a_queue_is_left_there(cluster: Cluster) -> None:
    body = pytorch()
    body["spec"]["runPolicy"]["suspend"] = True
    before = cluster.make(PYTORCH, body)

    outcome = cluster.carry_out(restart())

    assert (outcome.state, "queued already" in outcome.what) == ("succeeded", True)
    assert cluster.there(f"{PYTORCH}/llama")["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_a_job_of_kueue_goes_back_into_its_queue(cluster: Cluster) -> None:
    body = pytorch()
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "a"}
    cluster.make(PYTORCH, body)
    cluster.end(f"{PYTORCH}/llama")

    cluster.carry_out(restart())

    assert cluster.there(f"{PYTORCH}/llama")["spec"]["runPolicy"]["suspend"] is True


@pytest.mark.parametrize(
    ("path", "body", "way"),
    [
        pytest.param(JOBS, job, ("template",), id="Job"),
        pytest.param(PYTORCH, pytorch, ("pytorchReplicaSpecs", "Worker", "template"), id="PyTorchJob"),
        pytest.param(VOLCANO, volcano, ("tasks", 0, "template"), id="Volcano"),
        pytest.param(JOBSETS, jobset, ("replicatedJobs", 0, "template", "spec", "template"), id="JobSet"),
    ],
)
def test_a_live_job_that_must_avoid_a_node_is_made_anew(
    cluster: Cluster, path: str, body: Callable[[], Object], way: tuple[Any, ...]
) -> None:
    before = cluster.make(path, body())

    outcome = cluster.carry_out(restart(avoid=("gpu-1",)))

    after = cluster.there(f"{path}/llama")
    template = after["spec"]
    for step in way:
        template = template[step]
    assert outcome.what == f"deleted {body()['kind']} ml/llama and made it anew; it goes without gpu-1.local"
    assert uid(after) != uid(before)
    terms = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms == {"nodeSelectorTerms": [{"matchExpressions": [NOT_ON]}]}
    assert not tainted(cluster, "gpu-1")


def test_all_nodes_that_a_check_found_faulty_are_avoided(fake: tuple[Cluster, Fake]) -> None:
    cluster, _ = fake
    faulty = tuple(f"bad-{number}" for number in range(70))
    for name in faulty:
        cluster.node(name)
    cluster.make(JOBS, job())
    cluster.end(f"{JOBS}/llama")

    outcome = cluster.carry_out(restart(avoid=faulty))

    assert outcome.state == "succeeded", outcome
    required = cluster.there(f"{JOBS}/llama")["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    assert json.dumps(required).count("bad-") == 70


def test_a_trainjob_avoids_a_node_in_all_parts_of_its_jobset(cluster: Cluster) -> None:
    cluster.make(JOBSETS, jobset(owner=cluster.make(TRAINJOBS, trainjob())))

    outcome = cluster.carry_out(restart(avoid=("gpu-1",)))

    assert outcome.what == "deleted TrainJob ml/llama and made it anew; it goes without gpu-1.local"
    (ours,) = cluster.there(f"{TRAINJOBS}/llama")["spec"]["runtimePatches"]
    (part,) = ours["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert part["name"] == "node"
    assert (
        NOT_ON
        in json.loads(json.dumps(part["template"]["spec"]["template"]["spec"]))["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]["nodeSelectorTerms"][0]["matchExpressions"]
    )


def test_what_a_job_asked_of_its_nodes_stays(cluster: Cluster) -> None:
    gpu = {"key": "gpu", "operator": "In", "values": ["h100"]}
    other = {"key": "gpu", "operator": "In", "values": ["a100"]}
    known = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["gpu-7"]}
    terms = [{"matchExpressions": [gpu]}, {"matchExpressions": [other, known]}]
    body = job()
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    body["spec"]["template"] = {**POD, "spec": {**POD["spec"], "affinity": {"nodeAffinity": required}}}
    cluster.make(JOBS, body)

    cluster.carry_out(restart(avoid=("gpu-1",)))

    spec = cluster.there(f"{JOBS}/llama")["spec"]["template"]["spec"]
    found = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    both = {**known, "values": ["gpu-7", "gpu-1.local"]}
    assert found == [{"matchExpressions": [gpu, NOT_ON]}, {"matchExpressions": [other, both]}]


def test_the_owner_is_restarted_not_what_it_made(cluster: Cluster) -> None:
    owner = cluster.make(TRAINJOBS, trainjob())
    child = cluster.make(JOBSETS, jobset(owner=owner))
    cluster.end(f"{TRAINJOBS}/llama")

    outcome = cluster.carry_out(restart())

    assert outcome.what == "deleted TrainJob ml/llama and made it anew"
    assert uid(cluster.there(f"{TRAINJOBS}/llama")) != uid(owner)
    del child


def test_a_job_of_something_unknown_is_left_to_it(cluster: Cluster) -> None:
    whose = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "w", "uid": "1-2", "controller": True}
    body = volcano()
    body["metadata"]["ownerReferences"] = [whose]
    cluster.make(VOLCANO, body)

    outcome = cluster.carry_out(restart())

    assert (outcome.state, outcome.may_retry) == ("failed", False)
    assert outcome.what == "Job ml/llama belongs to Workflow w: restart that"


def test_two_jobs_of_one_name_are_told_apart_by_the_label(cluster: Cluster) -> None:
    plain, torch = cluster.make(JOBS, job()), cluster.make(PYTORCH, pytorch())
    for path in (JOBS, PYTORCH):
        cluster.end(f"{path}/llama")

    outcome = cluster.carry_out(restart())
    told = cluster.carry_out(restart(labels={"kind": "pytorchjob-controller"}))

    assert (outcome.state, outcome.may_retry) == ("failed", False)
    assert "PyTorchJob ml/llama and Job ml/llama have the same name" in outcome.what
    assert told.what == "deleted PyTorchJob ml/llama and made it anew"
    assert uid(cluster.there(f"{JOBS}/llama")) == uid(plain)
    assert uid(cluster.there(f"{PYTORCH}/llama")) != uid(torch)


def test_a_job_that_is_not_the_one_that_failed_is_left_alone(cluster: Cluster) -> None:
    made = cluster.make(JOBS, job())

    order = Order(KEY, "isolate_and_restart", "ml.llama", 1, nodes=("gpu-1",), labels={"job_uid": "of-yesterday"})
    outcome = cluster.carry_out(order)

    assert outcome.state == "succeeded"
    assert outcome.details["done"][0] == "cordoned and tainted gpu-1"
    assert "made anew since" in outcome.what
    assert uid(cluster.there(f"{JOBS}/llama")) == uid(made)


@pytest.mark.parametrize("live", [True, False], ids=["live", "ended"])
@pytest.mark.parametrize(("path", "body"), kinds())
def test_a_job_that_was_submitted_again_is_not_the_one_that_failed(
    cluster: Cluster, path: str, body: Callable[[], Object], live: bool
) -> None:
    """Most kinds have no uid that a log would tell: what was made after the last line is another."""
    cluster.make(path, body())
    if not live:
        cluster.end(f"{path}/llama")
    made = cluster.there(f"{path}/llama")

    outcome = cluster.carry_out(restart(last_seen=time.time() - 60, avoid=("gpu-1",)))

    after = cluster.there(f"{path}/llama")
    assert (outcome.state, "was made anew since" in outcome.what) == ("succeeded", True), outcome
    assert (uid(after), after["metadata"].get("annotations")) == (uid(made), made["metadata"].get("annotations"))
    assert "made it anew" in cluster.carry_out(restart(last_seen=time.time(), avoid=("gpu-1",))).what  # the one that failed


def test_the_uid_of_a_jobs_pods_is_none_of_its_owners(cluster: Cluster) -> None:
    cluster.make(JOBSETS, jobset())
    cluster.end(f"{JOBSETS}/llama")

    outcome = cluster.carry_out(restart(labels={"job_uid": "of-a-job-in-the-set", "kind": "mpi-operator"}))

    assert outcome.what == "deleted JobSet ml/llama and made it anew"


def test_a_jobset_that_restarted_itself_is_left_alone(cluster: Cluster) -> None:
    made = cluster.make(JOBSETS, jobset())
    cluster.status(f"{JOBSETS}/llama", {"restarts": 1})

    first, second = cluster.carry_out(restart()), cluster.carry_out(restart(avoid=("gpu-1",)))

    assert first.what == second.what == "JobSet ml/llama was restarted since: 1 restarts"
    assert uid(cluster.there(f"{JOBSETS}/llama")) == uid(made)
    cluster.patch(f"{JOBSETS}/llama", {"metadata": {"annotations": {"diagnose/attempt": "1"}}})
    assert cluster.carry_out(restart(avoid=("gpu-1",))).what.startswith("deleted JobSet ml/llama")  # its own count says nothing


@pytest.mark.parametrize(
    ("name", "labels", "says"),
    [
        ("ml.gone", {}, "knows no job gone in namespace ml any more"),
        ("llama", {}, "is not the name of a job in a namespace"),
        ("other.llama", {}, "jobs of namespace other may not be restarted"),
        ("llama", {"namespace": "other"}, "jobs of namespace other may not be restarted"),
        ("ml.../../nodes/gpu-1", {}, "is not the name of a job"),
        ("ml.llama?x=1", {}, "is not the name of a job"),
        ("ML.llama", {}, "is not the name of a job"),
        ("4711", {}, "is not the name of a job"),
        ("", {}, "is not the name of a job"),
        ("ml.llama", {"kind": "RayCluster"}, "knows no job llama"),
    ],
)
def test_a_job_that_is_none_of_ours(cluster: Cluster, name: str, labels: dict[str, str], says: str) -> None:
    made = cluster.make(JOBS, job())

    outcome = cluster.carry_out(Order(KEY, "isolate_and_restart", name, 1, nodes=("gpu-1",), labels=labels))

    assert (outcome.state, outcome.may_retry) == ("failed", False)
    assert says in outcome.what
    assert uid(cluster.there(f"{JOBS}/llama")) == uid(made)
    assert "unschedulable" not in cluster.there("/api/v1/nodes/gpu-1").get(
        "spec", {}
    )  # all is looked at before anything is done


def test_the_namespace_may_come_from_the_label(cluster: Cluster) -> None:
    cluster.make(JOBS, job())
    cluster.end(f"{JOBS}/llama")

    outcome = cluster.carry_out(Order(KEY, "restart", "llama", 1, labels={"namespace": "ml"}))

    assert outcome.what == "deleted Job ml/llama and made it anew"


def test_a_job_that_somebody_deletes_is_not_started_again(cluster: Cluster) -> None:
    body = volcano()
    body["metadata"]["finalizers"] = ["test.example/hold"]
    cluster.make(VOLCANO, body)
    cluster.send("DELETE", f"{VOLCANO}/llama")

    outcome = cluster.carry_out(restart())

    assert (outcome.state, outcome.may_retry) == ("failed", False)
    assert "being deleted by somebody" in outcome.what


# --- cut off in between


def test_the_manifest_is_kept_until_the_old_job_is_gone(cluster: Cluster) -> None:
    body = volcano()
    body["metadata"]["finalizers"] = ["test.example/hold"]
    before = cluster.make(VOLCANO, body)
    order = restart(avoid=("gpu-1",))

    cut_off = cluster.carry_out(order, by=cluster.executor(patience_s=0.2))
    kept = [one for one in cluster._listed(NOTES) if one.startswith("restart-")]
    still = cluster.carry_out(order, by=cluster.executor(patience_s=0.2))
    cluster.patch(f"{VOLCANO}/llama", {"metadata": {"finalizers": None}})
    until_gone(cluster, f"{VOLCANO}/llama", uid(before))
    later = cluster.carry_out(order)

    assert (cut_off.state, cut_off.may_retry, len(kept)) == ("unknown", True, 1)
    assert "test.example/hold" in cut_off.what
    assert f"its manifest is kept in ConfigMap diagnose/{kept[0]}: " in cut_off.what
    assert (still.state, still.may_retry) == ("unknown", True)
    assert later.what == "deleted Job ml/llama and made it anew"
    after = cluster.there(f"{VOLCANO}/llama")
    assert by_us(after) == KEY
    assert "affinity" in after["spec"]["tasks"][0]["template"]["spec"]
    assert "finalizers" not in after["metadata"]
    assert [one for one in cluster._listed(NOTES) if one.startswith("restart-")] == []


def until_gone(cluster: Cluster, path: str, was: str) -> None:
    for _ in range(200):
        found = cluster.get(path)
        if found is None or uid(found) != was:
            return
        time.sleep(0.05)
    raise AssertionError("it stays")


def test_somebody_made_it_anew_while_we_were_away(cluster: Cluster) -> None:
    body = volcano()
    body["metadata"]["finalizers"] = ["test.example/hold"]
    before = cluster.make(VOLCANO, body)
    cluster.carry_out(restart(), by=cluster.executor(patience_s=0.2))
    cluster.patch(f"{VOLCANO}/llama", {"metadata": {"finalizers": None}})
    until_gone(cluster, f"{VOLCANO}/llama", uid(before))
    theirs = cluster.make(VOLCANO, volcano())

    outcome = cluster.carry_out(restart())

    assert outcome.what == "Job ml/llama was made anew by others"
    assert uid(cluster.there(f"{VOLCANO}/llama")) == uid(theirs)
    assert [one for one in cluster._listed(NOTES) if one.startswith("restart-")] == []


class Ended(BaseException):
    """The process is no more."""


@pytest.mark.parametrize("number", range(9))
@pytest.mark.parametrize("avoid", [(), ("gpu-2",)], ids=["", "avoiding"])
def test_cut_off_after_any_change_it_goes_on(cluster: Cluster, number: int, avoid: tuple[str, ...]) -> None:
    """The process ends with its n-th change on the way, which is carried out; a new one gets the order."""
    before = cluster.make(JOBS, job())
    cluster.end(f"{JOBS}/llama")
    order = Order(KEY, "isolate_and_restart", "ml.llama", 1, nodes=("gpu-1",), avoid=avoid)
    changes: list[tuple[str, str, int]] = []

    def ending_after(most: int | None) -> Kubernetes:
        by = cluster.executor()
        ask = by._api._server.ask

        async def watched(method: str, path: str, **more: Any) -> Any:
            answer = await ask(method, path, **more)
            if method != "GET":
                changes.append((method, path, answer.status))
                if most is not None and len(changes) > most:
                    raise Ended
            return answer

        by._api._server.ask = watched  # type: ignore[method-assign, assignment]
        return by

    with contextlib.suppress(Ended):
        cluster.carry_out(order, by=ending_after(number))
    outcome = cluster.carry_out(order, by=ending_after(None))

    assert outcome.state == "succeeded", outcome
    after = cluster.there(f"{JOBS}/llama")
    assert by_us(after) == KEY
    assert uid(after) != uid(before)
    assert ("affinity" in after["spec"]["template"]["spec"]) == bool(avoid)
    made = [path for method, path, code in changes if method == "POST" and "/jobs?" in path and code == 201]
    assert len([path for path in made if "dryRun" not in path]) == 1
    assert [one for one in cluster._listed(NOTES) if one.startswith("restart-")] == []


# --- rights


def test_check_finds_nothing_missing_in_what_deploy_gives(cluster: Cluster) -> None:
    assert asyncio.run(cluster.executor().check()) == []


def test_check_says_which_rule_is_missing(cluster: Cluster) -> None:
    (missing, *more) = asyncio.run(cluster.executor(namespaces=("other",)).check())

    assert '{apiGroups: ["trainer.kubeflow.org"], resources: ["trainjobs"], verbs: ["get"]} in namespace other' in missing
    assert any('apiGroups: ["batch"]' in one and '"delete"' in one for one in more)


def test_a_right_that_is_missing_is_named_and_nothing_was_done(cluster: Cluster) -> None:
    outcome = cluster.carry_out(Order(KEY, "restart", "other.llama", 1), by=cluster.executor(namespaces=("other",)))

    assert (outcome.state, outcome.may_retry) == ("failed", True)
    assert '{apiGroups: ["trainer.kubeflow.org"], resources: ["trainjobs"], verbs: ["get"]} in namespace other' in outcome.what
    assert "deploy/kubernetes/executor.yaml" in outcome.what


def test_a_token_that_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("stale")
    stale = Kubernetes(Settings(cluster.server.url, ca=cluster.ca, token_file=tmp_path / "token"))

    outcome = cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1",)), by=stale)

    assert (outcome.state, outcome.may_retry) == ("failed", True)
    assert "the token is refused" in outcome.what
    assert "the token is refused" in asyncio.run(stale.check())[0]


# --- what it confirms

TEAM = Grant(namespaces=("ml",), nodes=("gpu-*",))


def asked(*, job: str = "ml.llama", began: float | None = None, speakers: tuple[Grant, ...] = (TEAM,), **more: Any) -> Order:
    """As the service asks before it decides. The log began now, when the job was there."""
    claim = Claim(speakers, tuple(more.pop("nodes", ("gpu-1",))), began or time.time() + 1)
    return Order("", "restart", job, 1, claim=claim, last_seen=time.time() + 1, **more)


def confirmed(cluster: Cluster, order: Order, **settings: Any) -> Confirmed | Unconfirmed:
    return asyncio.run(cluster.executor(**settings).confirm(order))


def why_not(cluster: Cluster, order: Order) -> str:
    said = confirmed(cluster, order)
    assert isinstance(said, Unconfirmed), said
    return said.why


KINDS = {
    "jobs.batch": (JOBS, job, "job-name"),
    "pytorchjobs.kubeflow.org": (PYTORCH, pytorch, "training.kubeflow.org/job-name"),
    "jobs.batch.volcano.sh": (VOLCANO, volcano, "volcano.sh/job-name"),
    "jobsets.jobset.x-k8s.io": (JOBSETS, jobset, "jobset.sigs.k8s.io/jobset-name"),
    "trainjobs.trainer.kubeflow.org": (TRAINJOBS, trainjob, "jobset.sigs.k8s.io/jobset-name"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_whose_a_job_is_and_where_it_runs_is_the_servers_word(cluster: Cluster, kind: str) -> None:
    path, manifest, label = KINDS[kind]
    cluster.make(path, manifest())
    for number, node in enumerate(("gpu-2", "gpu-1", "gpu-2", None)):
        cluster.pod(f"llama-{number}", node, {label: "llama"})
    cluster.pod("other", "gpu-3", {label: "other"})

    said = confirmed(cluster, asked())

    assert isinstance(said, Confirmed), said
    assert (said.subject, said.owner, sorted(said.nodes)) == (f"{kind}/ml/llama", "ml", ["gpu-1", "gpu-2"])
    assert isinstance(confirmed(cluster, asked(nodes=("llama-0",))), Confirmed)


def test_a_job_by_its_subject_is_no_other_whatever_its_labels_say(cluster: Cluster) -> None:
    for path, made in ((JOBS, job()), (VOLCANO, volcano())):
        cluster.make(path, made)
    cluster.pod("llama-0", "gpu-1", {"volcano.sh/job-name": "llama"})
    subject = "jobs.batch.volcano.sh/ml/llama"

    assert "have the same name" in why_not(cluster, asked())
    said = confirmed(cluster, asked(job="x", subject=subject, labels={"namespace": "lab", "kind": "PyTorchJob"}))
    assert isinstance(said, Confirmed)
    assert said.subject == subject
    assert "not there any more" in why_not(cluster, asked(subject="pytorchjobs.kubeflow.org/ml/llama"))


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ({"job": "lab.llama"}, "namespace lab, for which not all of the tokens"),
        ({"labels": {"namespace": "lab"}, "job": "llama"}, "namespace lab, for which not all of the tokens"),
        ({"speakers": (TEAM, NOBODY)}, "namespace ml, for which not all of the tokens"),
        ({"speakers": ()}, "nobody who may speak"),
        ({"speakers": (replace(TEAM, jobs=("mistral*",)),)}, "jobs named ml.llama"),
        ({"nodes": ("gpu-2",)}, "comes from gpu-2, where the job does not run"),
        ({"began": 1000.0}, "started after its log had begun"),
        ({"job": "ml.gone"}, "knows no job gone"),
        ({"job": "other.llama"}, "may not be restarted"),
    ],
)
def test_what_the_server_does_not_confirm(cluster: Cluster, order: Object, says: str) -> None:
    cluster.make(JOBS, job())
    cluster.make(JOBS.replace("/ml/", "/lab/"), job())
    cluster.pod("llama-0", "gpu-1", {"job-name": "llama"})
    cluster.pod("llama-0", "gpu-1", {"job-name": "llama"}, "lab")

    said = confirmed(cluster, asked(**order), namespaces=("ml", "lab"))

    assert isinstance(said, Unconfirmed), said
    assert (says in said.why, said.for_now) == (True, False), said


def test_a_job_that_went_well_or_left_no_trace(cluster: Cluster) -> None:
    cluster.make(JOBS, job())
    assert "no pods any more" in why_not(cluster, asked())
    cluster.pod("llama-0", "gpu-1", {"job-name": "llama"})
    cluster.end(f"{JOBS}/llama", "Complete")
    assert "has completed, and did not fail" in why_not(cluster, asked())


def test_how_a_job_ended_is_the_servers_word(cluster: Cluster) -> None:
    cluster.make(JOBS, job())
    for number in (0, 1):
        cluster.pod(f"llama-{number}", "gpu-1", {"job-name": "llama"})
    assert isinstance(said := confirmed(cluster, asked()), Confirmed)
    assert said.ending is None

    cluster.end(f"{JOBS}/llama")
    driven = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "NoExecute taint"}
    cluster.status(f"{PODS}/llama-0", {"phase": "Failed", "conditions": [driven]})
    assert isinstance(said := confirmed(cluster, asked()), Confirmed)
    assert said.ending is not None
    assert (said.ending.kind, said.nodes) == ("preempted", ("gpu-1",))

    cluster.status(
        "/api/v1/nodes/gpu-1", {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}
    )
    assert isinstance(said := confirmed(cluster, asked()), Confirmed)
    assert said.ending is not None
    assert said.ending.kind == "node_failure"


def test_who_deletes_a_job_does_not_want_it_back(cluster: Cluster) -> None:
    held = job()
    held["metadata"]["finalizers"] = ["site.example/held"]
    cluster.make(JOBS, held)
    cluster.pod("llama-0", "gpu-1", {"job-name": "llama"})
    cluster.send("DELETE", f"{JOBS}/llama")

    assert isinstance(said := confirmed(cluster, asked()), Confirmed)
    assert said.ending is not None
    assert (said.ending.kind, said.nodes) == ("cancelled", ())
    assert "Job ml/llama is being deleted" in said.ending.said


def test_a_job_that_goes_on_confirms_without_nodes(cluster: Cluster) -> None:
    """Nothing is done about it, and its log speaks against nobody."""
    cluster.make(JOBS, job())
    cluster.pod("llama-0", "gpu-1", {"job-name": "llama"})
    begun_anew = replace(asked(), labels={"job_uid": "another"})

    said = confirmed(cluster, begun_anew)

    assert isinstance(said, Confirmed), said
    assert said.nodes == ()


def test_all_nodes_are_listed_over_pages(cluster: Cluster) -> None:
    for number in range(3, 8):
        cluster.node(f"gpu-{number}")

    assert sorted(asyncio.run(cluster.executor().inventory())) == [f"gpu-{number}" for number in range(1, 8)]


def test_an_order_is_confirmed_again_before_it_is_carried_out(cluster: Cluster) -> None:
    before = cluster.make(JOBS, job())
    cluster.pod("llama-0", "gpu-1", {"job-name": "llama"})
    order = replace(asked(), key=KEY, kind="isolate_and_restart")

    elsewhere = cluster.carry_out(replace(order, nodes=("gpu-2",)))
    theirs = cluster.carry_out(replace(order, nodes=("gpu-1",), claim=Claim((NOBODY,), ("gpu-1",), time.time())))

    assert elsewhere.what == "not confirmed by Kubernetes: gpu-2 is not one of the nodes of Job ml/llama"
    assert theirs.what.startswith("not confirmed by Kubernetes: the job is in the namespace ml")
    assert not tainted(cluster, "gpu-1")
    assert not tainted(cluster, "gpu-2")
    assert uid(cluster.there(f"{JOBS}/llama")) == uid(before)
    done = cluster.carry_out(replace(order, nodes=("gpu-1",)))
    assert (done.state, tainted(cluster, "gpu-1")) == ("succeeded", True)
    assert uid(cluster.there(f"{JOBS}/llama")) != uid(before)


# --- the whole


@pytest.mark.timeout(280)
def test_a_job_whose_pods_told_of_its_end_runs_again_and_the_node_is_out(cluster: Cluster, tmp_path: Path) -> None:
    before = cluster.make(JOBS, job())
    cluster.end(f"{JOBS}/llama")
    where = f"url: '{cluster.server.url}', token_file: {cluster.token}" + (f", ca: {cluster.ca}" if cluster.ca else "")
    (tmp_path / "executors.yaml").write_text(f"executors:\n  - {{name: k, type: kubernetes, {where}, namespaces: [ml]}}\n")
    (tmp_path / "policy.yaml").write_text("mode: auto\nbudgets: {preempted: {backoff: 0s}}\n")
    words = "--authority", "labels", "--policy", str(tmp_path / "policy.yaml"), "--executors", str(tmp_path / "executors.yaml")
    labels = {"batch.kubernetes.io/job-name": "llama", "batch.kubernetes.io/controller-uid": uid(before)}
    pod = {"namespace_name": "ml", "pod_name": "llama-x7k2p", "host": "gpu-1", "labels": labels}
    with Server(tmp_path / "data", *words) as service:

        def says(line: bytes) -> None:
            record = {"log": line.decode().strip(), "kubernetes": pod}
            assert service.client.post("/v1/records", json=[record]).status_code < 300

        says(b"step 1 loss 2.0")
        says(CANCELLED)
        service.end("ml.llama", 143)
        wait(lambda: uid(cluster.get(f"{JOBS}/llama") or before) != uid(before), service)
        isolated = service.client.post("/v1/nodes/gpu-1/isolate", json={"why": "ECC"})
        assert isolated.status_code == 201, isolated.text
        wait(lambda: tainted(cluster, "gpu-1"), service)
        wait(lambda: {one["state"] for one in service.get("/v1/actions")["actions"]} == {"succeeded"}, service)
        (template,) = templates(cluster.there(f"{JOBS}/llama")["spec"])
        pod |= {"pod_name": "llama-q8w4e", "labels": {**labels, **template["metadata"]["labels"]}}
        says(b"step 1 loss 2.0")
        assert service.get("/v1/jobs/ml.llama")["attempt"] == 2
        said = [one["result"]["said"] for one in service.get("/v1/actions")["actions"]]

    assert sorted(said) == ["cordoned and tainted gpu-1", "deleted Job ml/llama and made it anew"]
    assert by_us(cluster.there(f"{JOBS}/llama"))


def test_the_jobs_that_hold_nodes_for_a_check_are_taken(cluster: Cluster, diagnose: Run) -> None:
    words = "--nodes", "gpu-[1-2]", "--image", "registry.example/train:1", "--namespace", "ml"
    done = diagnose("nodes", "manifest", *words)

    made = [cluster.make(JOBS, one) for one in yaml.safe_load_all(done.stdout)]

    assert [one["spec"]["template"]["spec"]["nodeName"] for one in made] == ["gpu-1", "gpu-2"]


# --- what only a fake can be made to do


def busy(code: int = 429, **headers: str) -> Refused:
    return Refused(code, "TooManyRequests" if code == 429 else "InternalError", "later \x1b[31m", **headers)


def test_a_token_that_rotates_is_read_anew(fake: tuple[Cluster, Fake]) -> None:
    cluster, server = fake
    del server.tokens["diagnose"]
    server.tokens["new"] = "system:serviceaccount:diagnose:diagnose"
    cluster.hook = lambda: cluster.token.write_text("new")

    outcome = cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1",)))

    assert outcome.what == "cordoned and tainted gpu-1"


@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_a_busy_server_is_asked_again_when_it_says(fake: tuple[Cluster, Fake], method: str) -> None:
    cluster, server = fake
    server.faults = [Fault(method, "nodes/gpu-1", busy(Retry_After="3"), times=2)]
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    by = Kubernetes(Settings(server.url, token_file=cluster.token), sleep=sleep)
    outcome = cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1",)), by=by)

    assert (outcome.state, slept) == ("succeeded", [3.0, 3.0])


@pytest.mark.parametrize("wait", ["", "100", "Wed, 21 Oct 2026 07:28:00 GMT", "-1"])
def test_a_server_that_stays_busy_is_left(fake: tuple[Cluster, Fake], wait: str) -> None:
    cluster, server = fake
    server.faults = [Fault("PATCH", "nodes/gpu-1", busy(Retry_After=wait), times=99)]

    outcome = cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1",)))

    assert (outcome.state, outcome.may_retry) == ("failed", True)  # 429: not done
    assert "\x1b" not in outcome.what
    assert server.faults[0].times >= 95
    assert not tainted(cluster, "gpu-1")


def test_a_node_that_was_taken_out_before_the_rest_failed_is_told(fake: tuple[Cluster, Fake]) -> None:
    cluster, server = fake
    cluster.make(JOBS, job())
    cluster.end(f"{JOBS}/llama")
    order = Order(KEY, "isolate_and_restart", "ml.llama", 1, nodes=("gpu-1",))
    server.faults = [Fault("DELETE", "jobs/llama", Refused(403, "Forbidden", "no"))]

    refused = cluster.carry_out(order)
    cluster.send("DELETE", f"{JOBS}/llama", {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"})
    gone = cluster.carry_out(order)
    other = cluster.carry_out(replace(order, key="f" * 32))
    dry = cluster.carry_out(replace(order, kind="isolate", key="e" * 32), dry_run=True)

    assert [(one.state, one.isolated) for one in (refused, gone)] == [("failed", ("gpu-1",))] * 2, refused
    assert (other.state, other.isolated) == ("failed", ())
    assert (dry.state, dry.isolated) == ("succeeded", ())


@pytest.mark.parametrize("code", [500, 503, 504])
def test_a_server_that_breaks_off_may_have_done_it(fake: tuple[Cluster, Fake], code: int) -> None:
    cluster, server = fake
    server.faults = [Fault("PATCH", "nodes/gpu-1", busy(code), times=99)]
    order = Order(KEY, "isolate", nodes=("gpu-1",))

    outcome = cluster.carry_out(order)
    server.faults = []

    assert (outcome.state, outcome.may_retry) == ("unknown", True)
    assert cluster.carry_out(order).state == "succeeded"


def test_done_and_the_answer_lost_it_is_not_done_twice(fake: tuple[Cluster, Fake]) -> None:
    cluster, server = fake
    cluster.make(JOBS, job())
    cluster.end(f"{JOBS}/llama")
    server.faults = [
        Fault("PATCH", "nodes/gpu-1", busy(500), after=True),
        Fault("POST", r"configmaps\?", busy(500), after=True),
        Fault("DELETE", "jobs/llama", busy(500), after=True, body="preconditions"),
        Fault("POST", r"jobs\?field", busy(500), after=True),
    ]
    order = Order(KEY, "isolate_and_restart", "ml.llama", 1, nodes=("gpu-1",))

    outcomes = [cluster.carry_out(order) for _ in range(3)]

    assert outcomes[-1].state == "succeeded", outcomes
    made = [one for one in server.requests if one.method == "POST" and "jobs" in one.path and "dryRun" not in one.query]
    assert [one.code for one in made].count(500) == 1  # which made it
    assert [one.code for one in made].count(201) == 0
    assert by_us(cluster.there(f"{JOBS}/llama")) == KEY


@pytest.mark.parametrize("goes", [("GET", ""), ("DELETE", "dryRun"), ("never", "")], ids=["at-once", "later", "last"])
def test_the_answer_to_its_deletion_lost_the_job_is_made_anew(fake: tuple[Cluster, Fake], goes: tuple[str, str]) -> None:
    """Asked again, the server says that it is another version by now: by our own doing. It goes for good before the request."""
    cluster, server = fake
    before = cluster.make(JOBS, job())
    cluster.end(f"{JOBS}/llama")

    def lost() -> None:
        gone = {"metadata": {"finalizers": None}}
        server.faults.append(Fault(goes[0], "jobs/llama", body=goes[1], then=lambda: cluster.patch(f"{JOBS}/llama", gone)))

    server.faults = [Fault("DELETE", "jobs/llama", busy(504), after=True, body="preconditions", then=lost)]

    outcome = cluster.carry_out(restart())

    deleted = [one.code for one in server.requests if one.method == "DELETE" and "preconditions" in one.body]
    assert (outcome.state, outcome.what) == ("succeeded", "deleted Job ml/llama and made it anew")
    assert deleted == [504, 409]
    assert uid(cluster.there(f"{JOBS}/llama")) != uid(before)
    assert [one for one in cluster._listed(NOTES) if one.startswith("restart-")] == []


def test_a_change_that_was_refused_after_the_server_broke_off_may_have_been_done(fake: tuple[Cluster, Fake]) -> None:
    cluster, server = fake
    server.faults = [
        Fault("PATCH", "nodes/gpu-1", busy(504), after=True),
        Fault("PATCH", "nodes/gpu-1", Refused(403, "Forbidden", "not any more")),
    ]

    outcome = cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1",)))

    assert (outcome.state, outcome.may_retry) == ("unknown", True)
    assert tainted(cluster, "gpu-1")


def test_a_node_that_changes_in_between_is_looked_at_again(fake: tuple[Cluster, Fake]) -> None:
    cluster, server = fake
    theirs = {"key": "team", "effect": "NoSchedule"}
    change = Fault("PATCH", "nodes/gpu-1", then=lambda: cluster.patch("/api/v1/nodes/gpu-1", {"spec": {"taints": [theirs]}}))
    server.faults = [change]

    outcome = cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1",)))

    assert outcome.state == "succeeded"
    assert [one["key"] for one in cluster.there("/api/v1/nodes/gpu-1")["spec"]["taints"]] == ["team", "diagnose/isolated"]
    assert [one.code for one in server.requests if one.method == "PATCH"] == [409, 200]


def test_a_node_that_changes_all_the_time_is_left(fake: tuple[Cluster, Fake]) -> None:
    cluster, server = fake
    count = iter(range(100))

    def change() -> None:
        cluster.patch("/api/v1/nodes/gpu-1", {"metadata": {"annotations": {"n": str(next(count))}}})

    server.faults = [Fault("PATCH", "nodes/gpu-1", then=change, times=99)]

    outcome = cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1",)))

    assert (outcome.state, outcome.may_retry) == ("failed", True)
    assert [one.code for one in server.requests if one.method == "PATCH"] == [409] * 5


def test_a_job_that_is_edited_before_it_is_deleted_is_made_as_edited(fake: tuple[Cluster, Fake]) -> None:
    cluster, server = fake
    cluster.make(JOBS, job())
    cluster.end(f"{JOBS}/llama")
    edit = Fault("PATCH", "never")
    server.faults = [edit]
    # Between the note and the deletion.
    server.faults.append(Fault("POST", "configmaps", then=lambda: cluster.patch(f"{JOBS}/llama", {"spec": {"parallelism": 4}})))

    outcome = cluster.carry_out(restart())

    assert outcome.state == "succeeded", outcome
    assert cluster.there(f"{JOBS}/llama")["spec"]["parallelism"] == 4


def test_a_job_that_somebody_replaces_before_it_is_deleted_is_theirs(fake: tuple[Cluster, Fake]) -> None:
    cluster, server = fake
    cluster.make(JOBS, job())
    cluster.end(f"{JOBS}/llama")
    theirs: list[Object] = []

    def replace() -> None:
        cluster.send("DELETE", f"{JOBS}/llama")
        theirs.append(cluster.make(JOBS, job()))

    server.faults = [Fault("POST", "configmaps", then=replace)]

    outcome = cluster.carry_out(restart())

    assert (outcome.state, outcome.may_retry) == ("failed", False)
    assert "deleted by somebody" in outcome.what
    assert uid(cluster.there(f"{JOBS}/llama")) == uid(theirs[0])
    assert [one for one in cluster._listed(NOTES) if one.startswith("restart-")] == []


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_a_job_that_somebody_deletes_before_we_do_is_not_started_again(fake: tuple[Cluster, Fake], policy: str) -> None:
    cluster, server = fake
    cluster.make(JOBS, job())
    cluster.end(f"{JOBS}/llama")
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}
    server.faults = [Fault("POST", "configmaps", then=lambda: cluster.send("DELETE", f"{JOBS}/llama", options))]

    outcome = cluster.carry_out(restart())

    assert (outcome.state, outcome.may_retry) == ("failed", False)
    assert "deleted by somebody" in outcome.what
    assert [one.method for one in server.requests if one.path.endswith("/ml/jobs") and "dryRun" not in one.query] == []
    assert [one for one in cluster._listed(NOTES) if one.startswith("restart-")] == []


@pytest.mark.parametrize("code", [400, 403, 422])
def test_a_refused_rehearsal_deletes_nothing(fake: tuple[Cluster, Fake], code: int) -> None:
    cluster, server = fake
    before = cluster.make(JOBS, job())
    cluster.end(f"{JOBS}/llama")
    server.faults = [Fault("POST", r"jobs\?dryRun", Refused(code, "Invalid", "exceeded quota: gpus"))]

    outcome = cluster.carry_out(restart())

    assert (outcome.state, outcome.may_retry) == ("failed", code == 403)
    assert "exceeded quota: gpus" in outcome.what
    assert uid(cluster.there(f"{JOBS}/llama")) == uid(before)
    assert all("dryRun" in one.query for one in server.requests if one.method != "GET")


def test_deleted_and_not_taken_again_the_manifest_is_kept(fake: tuple[Cluster, Fake]) -> None:
    cluster, server = fake
    cluster.make(JOBS, job())
    cluster.end(f"{JOBS}/llama")
    server.faults = [Fault("POST", r"jobs\?field", Refused(403, "Forbidden", "exceeded quota: gpus"))]

    half, whole = cluster.carry_out(restart()), cluster.carry_out(restart())

    assert (half.state, half.may_retry) == ("unknown", True)
    assert "not made anew yet" in half.what
    assert whole.what == "deleted Job ml/llama and made it anew"


def test_a_note_that_was_spoilt_is_said(fake: tuple[Cluster, Fake]) -> None:
    cluster, _ = fake
    body = volcano()
    body["metadata"]["finalizers"] = ["test.example/hold"]
    cluster.make(VOLCANO, body)
    cluster.carry_out(restart(), by=cluster.executor(patience_s=0.1))
    (name,) = [one for one in cluster._listed(NOTES) if one.startswith("restart-")]
    cluster.patch(f"{NOTES}/{name}", {"data": {"manifest": "{"}})

    outcome = cluster.carry_out(restart())

    assert (outcome.state, outcome.may_retry) == ("failed", False)
    assert f"the note {name} about a restart cannot be read" in outcome.what


def test_two_executors_at_once_make_one_job(fake: tuple[Cluster, Fake]) -> None:
    cluster, server = fake
    before = cluster.make(JOBS, job())
    cluster.end(f"{JOBS}/llama")

    async def both() -> list[Outcome]:
        return await asyncio.gather(*(cluster.executor().carry_out(restart()) for _ in range(2)))

    outcomes = asyncio.run(both())

    assert any(one.state == "succeeded" or one.may_retry for one in outcomes), outcomes
    assert cluster.carry_out(restart()).state == "succeeded"
    made = [one for one in server.requests if one.method == "POST" and "/jobs" in one.path and "dryRun" not in one.query]
    assert [one.code for one in made].count(201) == 1
    assert uid(cluster.there(f"{JOBS}/llama")) != uid(before)


def test_a_server_that_is_away_or_slow(fake: tuple[Cluster, Fake]) -> None:
    cluster, server = fake
    server.faults = [Fault("PATCH", "nodes", hang_s=2.0)]
    order = Order(KEY, "isolate", nodes=("gpu-1",))

    slow = cluster.carry_out(order, by=cluster.executor(timeout_s=0.3))
    server.stop()
    away = cluster.carry_out(order)

    assert (slow.state, slow.may_retry) == ("unknown", True)
    assert (away.state, away.may_retry) == ("failed", True)
    assert "does not answer" in asyncio.run(cluster.executor().check())[0]


def test_an_old_operator_that_cannot_suspend_gets_it_the_other_way(fake: tuple[Cluster, Fake]) -> None:
    cluster, server = fake
    server.suspends = False
    cluster.make(PYTORCH, pytorch())

    assert cluster.carry_out(restart()).what == "deleted PyTorchJob ml/llama and made it anew"


def test_every_change_says_what_it_was_decided_on(fake: tuple[Cluster, Fake]) -> None:
    cluster, server = fake
    cluster.make(JOBS, job())
    cluster.end(f"{JOBS}/llama")

    cluster.carry_out(Order(KEY, "isolate_and_restart", "ml.llama", 1, nodes=("gpu-1",)))

    for one in server.requests:
        if one.method == "PATCH":
            assert one.body["metadata"]["resourceVersion"]
        if one.method == "DELETE" and "/jobs/" in one.path and "dryRun" not in one.body:
            assert set(one.body["preconditions"]) == {"uid", "resourceVersion"}
            assert one.body["propagationPolicy"] == "Foreground"


# --- settings


def test_settings_as_a_pod_finds_them(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("ops\n")

    found = Settings.in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)

    assert (found.url, found.namespace) == ("https://[fd00::1]:6443", "ops")
    assert (found.ca, found.token_file) == (tmp_path / "ca.crt", tmp_path / "token")


@pytest.mark.parametrize("environment", [{}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}])
def test_outside_a_pod_that_is_said(environment: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(DiagnoseError, match=r"does not run in a pod|not mounted"):
        Settings.in_cluster(environment, tmp_path / "none")


def test_a_token_does_not_go_over_plain_http(tmp_path: Path) -> None:
    with pytest.raises(DiagnoseError, match="plain HTTP"):
        Kubernetes(Settings("http://kubernetes.example", token_file=tmp_path / "token"))


def configured(tmp_path: Path, text: str) -> Any:
    (tmp_path / "executors.yaml").write_text(f"executors:\n  - {{name: k, type: kubernetes{text}}}\n")
    return load(tmp_path / "executors.yaml")[0]


def test_the_file_of_executors_names_a_cluster(fake: tuple[Cluster, Fake], tmp_path: Path) -> None:
    cluster, server = fake
    one = configured(tmp_path, f", url: '{server.url}', token_file: token, namespaces: [ml], wait: 5s")

    assert asyncio.run(one.executor.check()) == []
    assert cluster.carry_out(Order(KEY, "isolate", nodes=("gpu-1",)), by=one.executor).what == "cordoned and tainted gpu-1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (", url: 'https://kubernetes.example'", "token_file"),
        (", url: 'http://kubernetes.example', token_file: t", "plain HTTP"),
        (", url: 'https://kubernetes.example', token: abc", "secrets do not belong in this file"),
        (", namespaces: [ml]", "does not run in a pod"),
    ],
)
def test_a_mistake_in_the_file_is_said_with_its_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, says: str
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(DiagnoseError) as raised:
        configured(tmp_path, text)
    assert says in f"{raised.value} {raised.value.remedy}"
    assert raised.value.where
    assert "executors.yaml:2" in raised.value.where


# --- hopeless jobs


def held(order: str = KEY, **more: Any) -> Order:
    return Order(order, "hold", "ml.llama", 1, **{"why": "KeyError: 'shard'", **more})


def hold(cluster: Cluster, order: Order | None = None, dry_run: bool = False) -> Outcome:
    return cluster.carry_out(order or held(), by=cluster.executor(hold=True), dry_run=dry_run)


def suspendable(cluster: Cluster) -> list[tuple[str, Callable[[], Object], tuple[str, ...]]]:
    """This server's: an old one does not know the switch of Jobs."""
    found: list[Any] = [
        (JOBSETS, jobset, ("suspend",)),
        (TRAINJOBS, trainjob, ("suspend",)),
        (PYTORCH, pytorch, ("runPolicy", "suspend")),
    ]
    return [*found, (JOBS, job, ("suspend",))] if cluster.server.suspends else found


def test_a_hopeless_job_is_suspended_once_and_let_go_by_a_person(cluster: Cluster) -> None:
    for path, body, way in suspendable(cluster):
        before = cluster.make(path, body())
        if path == JOBSETS:
            cluster.status(f"{path}/llama", {"restarts": 1, "replicatedJobsStatus": [{"active": 1}]})

        outcome = hold(cluster)

        after, shown = cluster.there(f"{path}/llama"), f"{before['kind']} ml/llama"
        assert (outcome.state, outcome.what.partition(";")[0]) == ("succeeded", f"held {shown}"), outcome
        assert (uid(after), of(after, way)) == (uid(before), True)
        notes = after["metadata"]["annotations"]
        assert notes["diagnose/held-by"] == KEY
        assert notes["diagnose/held-why"] == f"diagnose {KEY}: job ml.llama, attempt 1: KeyError: 'shard'"
        assert hold(cluster).what == f"{shown} was held by this order"
        assert hold(cluster, held("e" * 32, why="again")).what == f"{shown} was held before"
        assert cluster.there(f"{path}/llama")["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]

        # The way that it says leads back.
        _, patch = outcome.what.rsplit(" -p ", 1)
        cluster.patch(f"{path}/llama", json.loads(patch.strip("'")))
        assert of(cluster.there(f"{path}/llama"), way) is False
        again = hold(cluster, held("f" * 32))
        assert again.what == f"{shown} was held before, and somebody let it go: it was left alone"
        assert of(cluster.there(f"{path}/llama"), way) is False
        cluster.clean()


def test_what_is_made_anew_is_not_held_any_more(cluster: Cluster) -> None:
    cluster.make(JOBSETS, jobset())
    hold(cluster)
    cluster.end(f"{JOBSETS}/llama")

    cluster.carry_out(restart())

    after = cluster.there(f"{JOBSETS}/llama")
    assert "diagnose/held-by" not in after["metadata"]["annotations"]


def test_a_server_that_cannot_suspend_says_so(cluster: Cluster) -> None:
    before = cluster.server.suspends
    if isinstance(cluster.server, Fake):
        cluster.server.suspends = False
    try:
        made = cluster.make(JOBS, job())
        outcome = hold(cluster)
    finally:
        if isinstance(cluster.server, Fake):
            cluster.server.suspends = before
    assert (outcome.state, outcome.may_retry) == ("failed", False)
    assert "cannot be suspended by this server" in outcome.what
    assert cluster.there(f"{JOBS}/llama")["metadata"].get("annotations") == made["metadata"]["annotations"]


def test_a_volcano_job_has_no_switch(cluster: Cluster) -> None:
    cluster.make(VOLCANO, volcano())
    outcome = hold(cluster)
    assert (outcome.state, "no switch to suspend it" in outcome.what) == ("failed", True)


@pytest.mark.parametrize("ended", ["Failed", "Completed"])
def test_a_job_that_is_over_is_not_held(cluster: Cluster, ended: str) -> None:
    cluster.make(JOBSETS, jobset())
    cluster.end(f"{JOBSETS}/llama", ended)
    assert hold(cluster).what == "JobSet ml/llama has ended: its controller does not start it again"
    assert of(cluster.there(f"{JOBSETS}/llama"), ("suspend",)) is not True


def test_a_job_that_was_submitted_again_is_not_held(cluster: Cluster) -> None:
    cluster.make(JOBSETS, jobset())
    outcome = hold(cluster, held(last_seen=time.time() - 3600))
    assert outcome.what == "JobSet ml/llama was made anew since: it is not the one that failed"
    assert of(cluster.there(f"{JOBSETS}/llama"), ("suspend",)) is not True


def test_a_job_that_we_have_restarted_since_is_not_held(cluster: Cluster) -> None:
    body = jobset()
    body["metadata"]["annotations"] = {"diagnose/attempt": "2"}
    cluster.make(JOBSETS, body)
    assert hold(cluster).what == "JobSet ml/llama was restarted since: it is at attempt 2"


@pytest.mark.parametrize(("minutes", "left_alone"), [(1, False), (30, True)])
def test_an_attempt_that_runs_for_long_since_is_left_alone(cluster: Cluster, minutes: int, left_alone: bool) -> None:
    """Its controller was quicker. The failure comes back soon, or it was not hopeless."""
    cluster.make(JOBSETS, jobset())
    cluster.pod("llama-node-0", "gpu-1", {"jobset.sigs.k8s.io/jobset-name": "llama"})
    ended = time.time() + 5
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ended + 10))
    cluster.status(f"{PODS}/llama-node-0", {"phase": "Running", "startTime": began})
    executor = cluster.executor(hold=True, now=lambda: ended + 10 + 60 * minutes)

    outcome = cluster.carry_out(held(last_seen=ended), by=executor)

    assert ("and was left alone" in outcome.what) is left_alone, outcome
    assert (of(cluster.there(f"{JOBSETS}/llama"), ("suspend",)) is True) is not left_alone


def test_of_a_job_of_kueue_the_workload_is_deactivated(cluster: Cluster) -> None:
    made = cluster.make(JOBSETS, jobset())
    others = cluster.make(JOBSETS, jobset("other"))
    for name, whose in (("jobset-llama", made), ("jobset-other", others)):
        labels = {"kueue.x-k8s.io/job-uid": uid(whose)}
        metadata = {"name": name, "labels": labels}
        spec = {"queueName": "gpus", "active": True, "podSets": []}
        cluster.make(
            WORKLOADS, {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "metadata": metadata, "spec": spec}
        )

    told, outcome = hold(cluster, dry_run=True), hold(cluster)

    workload = cluster.there(f"{WORKLOADS}/jobset-llama")
    assert told.what == f"would have: {outcome.what}"
    assert outcome.what.partition(";")[0] == "held Workload ml/jobset-llama"
    assert (workload["spec"]["active"], workload["metadata"]["annotations"]["diagnose/held-by"]) == (False, KEY)
    assert cluster.there(f"{WORKLOADS}/jobset-other")["spec"]["active"] is True
    assert of(cluster.there(f"{JOBSETS}/llama"), ("suspend",)) is not True, "Kueue does that, and would undo ours"
    assert hold(cluster).what == "Workload ml/jobset-llama was held by this order"
    cluster.patch(f"{WORKLOADS}/jobset-llama", {"spec": {"active": True}})
    assert "somebody let it go" in hold(cluster, held("e" * 32)).what
    assert cluster.there(f"{WORKLOADS}/jobset-llama")["spec"]["active"] is True


FAILS = {"rules": [{"action": "FailJob", "onPodConditions": [{"type": "diagnose/hopeless", "status": "True"}]}]}
COUNTS = {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [0]}}


def failing(policy: Object) -> Object:
    """A JobSet whose jobs have this policy: it keeps it on any server."""
    body = jobset()
    body["spec"]["replicatedJobs"][0]["template"]["spec"] |= {"podFailurePolicy": policy, "backoffLimit": 6}
    return body


def test_a_job_with_a_policy_for_it_fails_by_itself(cluster: Cluster) -> None:
    cluster.make(JOBSETS, failing(FAILS))
    for name, phase in (("llama-node-0-a", "Failed"), ("llama-node-0-b", "Running")):
        cluster.pod(name, "gpu-1", {"jobset.sigs.k8s.io/jobset-name": "llama"})
        theirs = {"type": "Ready", "status": "False"}
        cluster.status(f"{PODS}/{name}", {"phase": phase, "conditions": [theirs]})

    outcome = hold(cluster)

    told = {one["type"]: one for one in cluster.there(f"{PODS}/llama-node-0-a")["status"]["conditions"]}
    assert outcome.what == "told pod ml/llama-node-0-a hopeless: the podFailurePolicy of JobSet ml/llama fails it"
    assert (told["diagnose/hopeless"]["status"], told["Ready"]["status"]) == ("True", "False")
    assert told["diagnose/hopeless"]["message"].endswith("KeyError: 'shard'")
    assert len(cluster.there(f"{PODS}/llama-node-0-b")["status"]["conditions"]) == 1
    assert of(cluster.there(f"{JOBSETS}/llama"), ("suspend",)) is not True
    version = cluster.there(f"{PODS}/llama-node-0-a")["metadata"]["resourceVersion"]
    hold(cluster)
    assert cluster.there(f"{PODS}/llama-node-0-a")["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize(
    ("policy", "phase"),
    [
        ({"rules": [COUNTS, *FAILS["rules"]]}, "Failed"),
        ({"rules": [{**FAILS["rules"][0], "action": "Ignore"}]}, "Failed"),
        ({"rules": [COUNTS]}, "Failed"),
        (FAILS, "Running"),
    ],
    ids=["another-rule-comes-first", "ignores", "no-such-rule", "no-pod-has-failed"],
)
def test_where_its_policy_would_not_fail_it_it_is_suspended(cluster: Cluster, policy: Object, phase: str) -> None:
    cluster.make(JOBSETS, failing(policy))
    cluster.pod("llama-node-0", "gpu-1", {"jobset.sigs.k8s.io/jobset-name": "llama"})
    cluster.status(f"{PODS}/llama-node-0", {"phase": phase, "conditions": []})

    hold(cluster)

    assert of(cluster.there(f"{JOBSETS}/llama"), ("suspend",)) is True
    assert not cluster.there(f"{PODS}/llama-node-0")["status"].get("conditions")


def test_who_may_not_hold_is_not_asked_to(cluster: Cluster) -> None:
    assert "hold" not in cluster.executor().kinds
    outcome = cluster.carry_out(held())
    assert (outcome.state, "does not carry out 'hold'" in outcome.what) == ("failed", True)


def test_a_hold_is_confirmed_like_any_order(cluster: Cluster) -> None:
    cluster.make(JOBSETS, jobset())
    cluster.pod("llama-node-0", "gpu-1", {"jobset.sigs.k8s.io/jobset-name": "llama"})
    theirs = Claim((Grant(namespaces=("vision",)),), ("gpu-1",), time.time())
    mine = Claim((Grant(namespaces=("ml",)),), ("gpu-1",), time.time())

    refused, done = hold(cluster, held(claim=theirs)), hold(cluster, held(claim=mine))

    assert (refused.state, "not confirmed by Kubernetes" in refused.what) == ("failed", True), refused
    assert done.what.startswith("held JobSet ml/llama")


@pytest.mark.parametrize("restarts", [0, 1, 3])
def test_a_hold_of_what_its_controller_has_restarted_is_confirmed_too(cluster: Cluster, restarts: int) -> None:
    """Its controller is mostly quicker than the order. What runs now must be where the log is from."""
    cluster.make(JOBSETS, jobset())
    cluster.status(f"{JOBSETS}/llama", {"restarts": restarts, "replicatedJobsStatus": [{"active": 1}]})
    elsewhere = held(claim=Claim((TEAM,), ("gpu-9",), time.time()))
    here, word = (
        replace(elsewhere, claim=Claim((TEAM,), (node,), time.time(), by)) for node, by in (("gpu-1", None), ("gpu-9", "ann"))
    )
    assert "no pods any more" in why_not(cluster, here)
    assert "no pods any more" in hold(cluster, here).what
    cluster.pod("llama-node-0", "gpu-1", {"jobset.sigs.k8s.io/jobset-name": "llama"})

    assert "comes from gpu-9, where the job does not run" in why_not(cluster, elsewhere)
    refused = hold(cluster, elsewhere)
    assert (refused.state, "not confirmed by Kubernetes" in refused.what) == ("failed", True), refused
    assert of(cluster.there(f"{JOBSETS}/llama"), ("suspend",)) is not True

    said = confirmed(cluster, here)
    assert isinstance(said, Confirmed), said
    assert said.nodes == (() if restarts else ("gpu-1",)), "where it runs now says nothing of what failed before"
    assert hold(cluster, word, dry_run=True).what.startswith("would have: held JobSet ml/llama"), "a person's yes"
    assert hold(cluster, here).what.startswith("held JobSet ml/llama")


def test_a_hold_of_what_waits_in_a_queue_is_confirmed_too(cluster: Cluster) -> None:
    """Its workload would be deactivated."""
    body = jobset()
    body["spec"]["suspend"] = True
    cluster.make(JOBSETS, body)
    claim = Claim((TEAM,), ("gpu-9",), time.time())
    assert "no pods any more" in hold(cluster, held(claim=claim)).what
    assert "switched off already" in hold(cluster, held(claim=replace(claim, word="ann"))).what


def test_the_rights_to_hold_are_asked_for_only_where_they_are_used(tmp_path: Path) -> None:
    begun = Fake(tokens={"diagnose": "system:serviceaccount:diagnose:diagnose"})
    (tmp_path / "token").write_text("diagnose")
    cluster = Cluster(begun, tmp_path / "token")
    try:
        furnish(cluster, ("executor.yaml",))
        assert asyncio.run(cluster.executor().check()) == []
        missing = asyncio.run(cluster.executor(hold=True).check())
    finally:
        begun.stop()
    assert [one.partition("resources: ")[2].partition("}")[0] for one in missing] == [
        '["pods/status"], verbs: ["patch"]',
        '["pods"], verbs: ["get"]',
        *(f'["workloads"], verbs: ["{verb}"]' for verb in ("get", "list", "patch")),
    ]
