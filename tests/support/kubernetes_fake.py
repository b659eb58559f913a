"""A fake API server of Kubernetes, strict: HTTP over a socket, objects held to the published OpenAPI.

It is a fake because no package that CI can install holds a kube-apiserver; ``tests/support/kubernetes_real.py`` runs the same
tests against a real one where somebody has built it. Core objects are held to Kubernetes 1.33's schemas, those of
Kubeflow's operators to their models. It refuses what a real one might let pass: fields that no schema knows, parameters that it
does not implement, a version or a uid at creation. It has tokens, RBAC as manifests say it, optimistic locking, preconditions,
dry runs, finalizers with foreground deletion, generations, status as a subresource, templates of Jobs that stay as they are. It
has no controllers: what pods do, tests write into status.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib.resources
import json
import re
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

Object = dict[str, Any]
VERSION = "1.33"
_BASE = "http://kubernetes/api/_definitions.json"
_PAGE = 2
"""objects that a listing has at once, however many are asked for: whoever reads one page only notices"""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True)
class Served:
    """A resource."""

    kind: str
    namespaced: bool
    schema: Callable[[], Draft202012Validator]
    fixed: tuple[tuple[str, ...], ...] = ()
    """what may not be changed"""
    way: tuple[str, ...] = ("spec", "suspend")


@functools.cache
def _definitions() -> Any:
    root = importlib.resources.files("kubernetes_validate") / "kubernetes-json-schema" / f"v{VERSION}.0-local-strict"
    contents = json.loads((root / "_definitions.json").read_text("utf-8"))
    contents.setdefault("$schema", "https://json-schema.org/draft/2020-12/schema")
    return Registry().with_resource(_BASE, Resource.from_contents(contents))


@functools.cache
def _held(schema: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(schema), registry=_definitions())


def _core(name: str) -> Callable[[], Draft202012Validator]:
    return lambda: _held(json.dumps({"$ref": f"{_BASE}#/$defs/io.k8s.{name}"}))


def _ref(name: str) -> Object:
    return {"$ref": f"{_BASE}#/$defs/io.k8s.{name}"}


def _closed(properties: Object, *required: str) -> Object:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _custom(kind: str, api: str, spec: Object) -> Callable[[], Draft202012Validator]:
    properties = {
        "apiVersion": {"const": api},
        "kind": {"const": kind},
        "metadata": _ref("apimachinery.pkg.apis.meta.v1.ObjectMeta"),
        "spec": spec,
        "status": {"type": "object"},
    }
    return lambda: _held(json.dumps(_closed(properties, "apiVersion", "kind", "metadata", "spec")))


def _kubeflow(kind: str, replicas: str) -> Served:
    """After the models of kubeflow-training 1.9."""
    replica = _closed(
        {
            "replicas": {"type": "integer"},
            "restartPolicy": {"enum": ["Always", "OnFailure", "Never", "ExitCode"]},
            "template": _ref("api.core.v1.PodTemplateSpec"),
        }
    )
    run_policy = _closed(
        {
            "activeDeadlineSeconds": {"type": "integer"},
            "backoffLimit": {"type": "integer"},
            "cleanPodPolicy": {"enum": ["All", "Running", "None"]},
            "managedBy": {"type": "string"},
            "schedulingPolicy": {"type": "object"},
            "suspend": {"type": "boolean"},
            "ttlSecondsAfterFinished": {"type": "integer"},
        }
    )
    more: Object = {"nprocPerNode": {"type": "string"}, "elasticPolicy": {"type": "object"}} if kind == "PyTorchJob" else {}
    spec = _closed({replicas: {"type": "object", "additionalProperties": replica}, "runPolicy": run_policy, **more}, replicas)
    return Served(kind, True, _custom(kind, "kubeflow.org/v1", spec), way=("spec", "runPolicy", "suspend"))


def _trainer(name: str) -> Callable[[], Draft202012Validator]:
    """The models of kubeflow-trainer-api, made strict."""

    @functools.cache
    def schema() -> Draft202012Validator:
        import kubeflow_trainer_api.models as models

        found = getattr(models, name).model_json_schema(by_alias=True)
        _close(found)
        return Draft202012Validator(found)

    return schema


def _close(schema: Any) -> None:
    if isinstance(schema, dict):
        if "properties" in schema and schema.get("type") == "object":
            schema.setdefault("additionalProperties", False)
        for inner in schema.values():
            _close(inner)
    elif isinstance(schema, list):
        for inner in schema:
            _close(inner)


_VOLCANO = _closed(
    {
        "minAvailable": {"type": "integer"},
        "schedulerName": {"type": "string"},
        "queue": {"type": "string"},
        "maxRetry": {"type": "integer"},
        "policies": {"type": "array"},
        "plugins": {"type": "object"},
        "tasks": {
            "type": "array",
            "items": _closed(
                {
                    "name": {"type": "string"},
                    "replicas": {"type": "integer"},
                    "policies": {"type": "array"},
                    "template": _ref("api.core.v1.PodTemplateSpec"),
                }
            ),
        },
    }
)
_WORKLOAD = _closed(
    {
        "active": {"type": "boolean"},
        "podSets": {"type": "array"},
        "priority": {"type": "integer"},
        "queueName": {"type": "string"},
    }
)
_RBAC = "api.rbac.v1"
_JOB_FIXED = (("spec", "template"), ("spec", "selector"), ("spec", "completions"), ("spec", "completionMode"))
SERVED: dict[tuple[str, str, str], Served] = {
    ("", "v1", "nodes"): Served("Node", False, _core("api.core.v1.Node")),
    ("", "v1", "pods"): Served("Pod", True, _core("api.core.v1.Pod")),
    ("", "v1", "namespaces"): Served("Namespace", False, _core("api.core.v1.Namespace")),
    ("", "v1", "configmaps"): Served("ConfigMap", True, _core("api.core.v1.ConfigMap")),
    ("", "v1", "serviceaccounts"): Served("ServiceAccount", True, _core("api.core.v1.ServiceAccount")),
    ("batch", "v1", "jobs"): Served("Job", True, _core("api.batch.v1.Job"), _JOB_FIXED),
    ("rbac.authorization.k8s.io", "v1", "clusterroles"): Served("ClusterRole", False, _core(f"{_RBAC}.ClusterRole")),
    ("rbac.authorization.k8s.io", "v1", "roles"): Served("Role", True, _core(f"{_RBAC}.Role")),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings"): Served(
        "ClusterRoleBinding", False, _core(f"{_RBAC}.ClusterRoleBinding")
    ),
    ("rbac.authorization.k8s.io", "v1", "rolebindings"): Served("RoleBinding", True, _core(f"{_RBAC}.RoleBinding")),
    ("authorization.k8s.io", "v1", "selfsubjectaccessreviews"): Served(
        "SelfSubjectAccessReview", False, _core("api.authorization.v1.SelfSubjectAccessReview")
    ),
    ("kubeflow.org", "v1", "pytorchjobs"): _kubeflow("PyTorchJob", "pytorchReplicaSpecs"),
    ("kubeflow.org", "v1", "tfjobs"): _kubeflow("TFJob", "tfReplicaSpecs"),
    ("batch.volcano.sh", "v1alpha1", "jobs"): Served("Job", True, _custom("Job", "batch.volcano.sh/v1alpha1", _VOLCANO)),
    ("jobset.x-k8s.io", "v1alpha2", "jobsets"): Served("JobSet", True, _trainer("JobsetV1alpha2JobSet")),
    ("kueue.x-k8s.io", "v1beta1", "workloads"): Served(
        "Workload", True, _custom("Workload", "kueue.x-k8s.io/v1beta1", _WORKLOAD)
    ),
    ("trainer.kubeflow.org", "v1alpha1", "trainjobs"): Served("TrainJob", True, _trainer("TrainerV1alpha1TrainJob")),
}


class Refused(Exception):
    """Becomes a Status."""

    def __init__(self, code: int, reason: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.headers = code, reason, message, headers


@dataclass
class Fault:
    """What the next matching requests meet."""

    method: str
    path: str
    answer: Refused | None = None
    """instead of being carried out"""
    after: bool = False
    """it is carried out, and the answer is lost"""
    hang_s: float = 0.0
    then: Callable[[], Any] | None = None
    """something that others do in the moment before"""
    times: int = 1
    body: str = ""
    """what the request must hold"""

    def meets(self, method: str, path: str, body: bytes) -> bool:
        return self.method == method and re.search(self.path, path) is not None and self.body.encode() in body


@dataclass
class Request:
    """One that was seen."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    code: int = 0


@dataclass
class Fake:
    """The server."""

    suspends: bool = True
    """whether it knows how to suspend; an older one drops the field"""
    tokens: dict[str, str] = field(default_factory=dict)
    """token -> user"""
    faults: list[Fault] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokens.setdefault("admin", "admin")
        self._objects: dict[tuple[str, str, str, str], Object] = {}
        self._ending: dict[tuple[str, str, str, str], int] = {}
        """how many looks the collector lets pass"""
        self._version = 100
        self._lock = threading.RLock()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                fake._answer(self, self.rfile.read(length) if length else b"")

            do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = answer  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.ca = None
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    # --- a request

    def _answer(self, handler: BaseHTTPRequestHandler, content: bytes) -> None:
        parts = urlsplit(handler.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        method = handler.command
        seen = Request(method, parts.path, query, None)
        lost = False
        headers: dict[str, str] = {}
        try:
            user = self._user(handler)
            fault = None
            if user != "admin":
                self.requests.append(seen)
                fault = next((one for one in self.faults if one.meets(method, handler.path, content)), None)
            if fault is not None:
                fault.times -= 1
                if fault.times <= 0:
                    self.faults.remove(fault)
                if fault.then is not None:
                    fault.then()
                time.sleep(fault.hang_s)
                lost = fault.after
                if fault.answer is not None and not fault.after:
                    raise fault.answer
            with self._lock:
                seen.body = json.loads(content) if content else None
                code, said = self._carried_out(user, method, parts.path, query, handler.headers.get("Content-Type"), seen.body)
            if lost and fault is not None and fault.answer is not None:
                raise fault.answer
        except Refused as refused:
            code, headers = refused.code, refused.headers
            said = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": refused.message}
            said |= {"reason": refused.reason, "code": code}
        seen.code = code
        if lost and headers == {} and code < 300:
            handler.close_connection = True
            return
        body = json.dumps(said).encode()
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        with contextlib.suppress(ConnectionError):  # who asked has left
            handler.end_headers()
            handler.wfile.write(body)

    def _user(self, handler: BaseHTTPRequestHandler) -> str:
        scheme, _, token = handler.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or token not in self.tokens:
            raise Refused(401, "Unauthorized", "Unauthorized")
        return self.tokens[token]

    def _carried_out(
        self, user: str, method: str, path: str, query: dict[str, str], content_type: str | None, body: Any
    ) -> tuple[int, Object]:
        if path == "/version":
            return 200, {"major": "1", "minor": VERSION.partition(".")[2]}
        if path == "/apis":
            groups: dict[str, str] = {group: version for group, version, _ in SERVED if group}
            listed = [
                {"name": name, "versions": [one], "preferredVersion": one}
                for name, version in groups.items()
                for one in [{"groupVersion": f"{name}/{version}", "version": version}]
            ]
            return 200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        group, version, plural, namespace, name, sub = self._parsed(path)
        served = SERVED[(group, version, plural)]
        if unknown := query.keys() - {"dryRun", "fieldValidation", "fieldManager", "labelSelector", "limit", "continue"}:
            raise Refused(400, "BadRequest", f"this fake knows no parameter {unknown}")
        if query.get("dryRun", "All") != "All":
            raise Refused(422, "Invalid", "dryRun must be All")
        verb = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}.get(method)
        if method == "GET" and name is None:
            verb = "list"
        if verb is None or (name is None) != (verb in ("create", "list")):
            raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        resource = f"{plural}/{sub}" if sub else plural
        if plural == "selfsubjectaccessreviews":
            self._validate(served, body)
            asked = body["spec"]["resourceAttributes"]
            of = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
            allowed = self.allowed(user, asked["verb"], asked.get("group", ""), of, asked.get("namespace"))
            return 201, {**body, "status": {"allowed": allowed}}
        if not self.allowed(user, verb, group, resource, namespace):
            of = f"{resource}.{group}" if group else resource
            where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
            raise Refused(
                403,
                "Forbidden",
                f'{of} "{name}" is forbidden: User "{user}" cannot {verb} resource "{resource}" in API group "{group}"{where}',
            )
        if method == "POST":
            return self._create(group, served, plural, namespace, content_type, body, "dryRun" in query)
        if verb == "list":
            return 200, self._listed(group, plural, namespace or "", query)
        key = (group, plural, namespace or "", str(name))
        found = self._objects.get(key)
        of = f"{plural}.{group}" if group else plural
        if found is None:
            raise Refused(404, "NotFound", f'{of} "{name}" not found')
        if method == "GET":
            self._collect(key)
            return 200, copy.deepcopy(found)
        if method == "PATCH":
            if content_type != "application/merge-patch+json":
                raise Refused(415, "UnsupportedMediaType", f"this fake patches no {content_type}")
            return 200, self._patch(key, served, found, body, sub, "dryRun" in query)
        return 200, self._delete(key, found, body or {}, of)

    def _parsed(self, path: str) -> tuple[str, str, str, str | None, str | None, str | None]:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        group = ""
        if parts[0] == "apis":
            group, parts = parts[1], parts[1:]
        elif parts[0] != "api":
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        version, rest = parts[1], parts[2:]
        namespace = None
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        served = SERVED.get((group, version, rest[0]))
        if served is None or served.namespaced != (namespace is not None) or len(rest) > 3:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        sub = rest[2] if len(rest) == 3 else None
        if sub not in (None, "status"):
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return group, version, rest[0], namespace, rest[1] if len(rest) > 1 else None, sub

    def allowed(self, user: str, verb: str, group: str, resource: str, namespace: str | None) -> bool:
        if user == "admin":
            return True
        for (_, plural, within, _), binding in list(self._objects.items()):
            if plural not in ("clusterrolebindings", "rolebindings") or (plural == "rolebindings" and within != namespace):
                continue
            subjects = [f"system:serviceaccount:{one.get('namespace', within)}:{one['name']}" for one in binding["subjects"]]
            ref = binding["roleRef"]
            home = within if ref["kind"] == "Role" else ""
            role = self._objects.get(("rbac.authorization.k8s.io", f"{ref['kind'].lower()}s", home, ref["name"]), {})
            for rule in role.get("rules") or []:
                if user in subjects and group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"]:
                    return True
        return False

    # --- what is done

    def _listed(self, group: str, plural: str, namespace: str, query: dict[str, str]) -> Object:
        """A page, in the order of names; the next one continues behind its last."""
        wanted = dict(one.split("=", 1) for one in query.get("labelSelector", "").split(",") if one)
        found = [
            self._objects[key]
            for key in sorted(self._objects)
            if key[:3] == (group, plural, namespace) and key[3] > query.get("continue", "")
            if wanted.items() <= (self._objects[key]["metadata"].get("labels") or {}).items()
        ]
        page = found[:_PAGE]
        more = {"continue": page[-1]["metadata"]["name"]} if len(found) > _PAGE else {}
        return {"kind": "List", "apiVersion": "v1", "metadata": more, "items": copy.deepcopy(page)}

    def _validate(self, served: Served, body: Any) -> None:
        errors = sorted(served.schema().iter_errors(body), key=str)
        if errors:
            first = errors[0]
            while first.context:
                first = first.context[0]
            where = ".".join(str(step) for step in first.absolute_path)
            raise Refused(422, "Invalid", f"{served.kind} is invalid: {where}: {first.message[:300]}")

    def _create(
        self, group: str, served: Served, plural: str, namespace: str | None, content_type: str | None, body: Any, dry: bool
    ) -> tuple[int, Object]:
        if content_type != "application/json":
            raise Refused(415, "UnsupportedMediaType", f"this fake takes no {content_type}")
        if namespace is not None and ("", "namespaces", "", namespace) not in self._objects:
            raise Refused(404, "NotFound", f'namespaces "{namespace}" not found')
        self._validate(served, body)
        thing: Object = copy.deepcopy(body)
        metadata = thing["metadata"]
        for name in ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "selfLink"):
            if metadata.get(name):
                raise Refused(400, "BadRequest", f"{name} should not be set on objects to be created")
        name = metadata.get("name", "")
        if not _NAME.fullmatch(name) or len(name) > 253 or (served.kind in ("Job", "JobSet") and len(name) > 63):
            raise Refused(422, "Invalid", f'{served.kind} "{name}" is invalid: metadata.name: Invalid value')
        if namespace is not None and metadata.setdefault("namespace", namespace) != namespace:
            raise Refused(400, "BadRequest", "the namespace of the object does not match that of the request")
        key = (group, plural, namespace or "", name)
        if key in self._objects:
            raise Refused(409, "AlreadyExists", f'{plural}.{group} "{name}" already exists')
        metadata |= {"uid": str(uuid.uuid4()), "generation": 1, "creationTimestamp": _now()}
        metadata["managedFields"] = [{"manager": "diagnose", "operation": "Update", "apiVersion": "v1"}]
        if "spec" in SERVED_SPEC.get(served.kind, ("spec",)):
            thing.pop("status", None)
        if group == "batch":
            self._select(thing)
        self._drop(served, thing)
        if not dry:
            self._store(key, thing)
        return 201, copy.deepcopy(thing)

    @staticmethod
    def _select(job: Object) -> None:
        """As the strategy of Jobs does at creation."""
        template = job["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {})
        labels = {"controller-uid", "batch.kubernetes.io/controller-uid"}
        if "selector" in job["spec"] or labels & template.keys():
            raise Refused(422, "Invalid", "spec.selector: Invalid value: `selector` not auto-generated")
        uid = job["metadata"]["uid"]
        for prefix in ("", "batch.kubernetes.io/"):
            template |= {f"{prefix}controller-uid": uid, f"{prefix}job-name": job["metadata"]["name"]}
        job["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        job["metadata"].setdefault("labels", {}).update(template)

    def _drop(self, served: Served, thing: Object) -> None:
        if not self.suspends:
            inner = thing
            for step in served.way[:-1]:
                inner = inner.get(step) or {}
            inner.pop(served.way[-1], None)

    def _patch(
        self, key: tuple[str, str, str, str], served: Served, found: Object, body: Any, sub: str | None, dry: bool
    ) -> Object:
        of = f"{key[1]}.{key[0]}" if key[0] else key[1]
        version = {name: value for name, value in body.get("metadata", {}).items() if name == "resourceVersion"}
        changed = _merged(found, {"status": body.get("status"), "metadata": version} if sub else body)
        assert isinstance(changed, dict)
        if not sub and "status" in found:
            changed["status"] = found["status"]
        before, after = found["metadata"], changed["metadata"]
        if after.get("resourceVersion") != before["resourceVersion"] or after.get("uid") != before["uid"]:
            raise Refused(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {of} "{key[3]}": the object has been modified; please apply your changes '
                "to the latest version and try again",
            )
        self._drop(served, changed)
        self._validate(served, {name: value for name, value in changed.items() if name != "status" or served.kind == "Node"})
        for way in served.fixed:
            if _at(found, way) != _at(changed, way):
                raise Refused(422, "Invalid", f"{'.'.join(way)}: Invalid value: field is immutable")
        if found.get("spec") != changed.get("spec"):
            after["generation"] = before["generation"] + 1
        if not dry:
            self._store(key, changed)
            if after.get("deletionTimestamp") and not after.get("finalizers"):
                del self._objects[key]
                self._ending.pop(key, None)
        return copy.deepcopy(changed)

    def _delete(self, key: tuple[str, str, str, str], found: Object, options: Object, of: str) -> Object:
        errors = list(_core("apimachinery.pkg.apis.meta.v1.DeleteOptions")().iter_errors(options))
        if errors:
            raise Refused(400, "BadRequest", errors[0].message[:300])
        metadata = found["metadata"]
        for name, wanted in (options.get("preconditions") or {}).items():
            if metadata[name] != wanted:
                raise Refused(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on {of} "{key[3]}": the {name} in the precondition ({wanted}) does not '
                    f"match the {name} in record ({metadata[name]})",
                )
        gone = copy.deepcopy(found)
        held = [one for one in metadata.get("finalizers") or [] if one != "foregroundDeletion"]
        if options.get("propagationPolicy") == "Foreground":
            held.append("foregroundDeletion")
        if options.get("dryRun") == ["All"]:
            return gone
        if held:
            gone["metadata"] |= {"deletionTimestamp": _now(), "finalizers": held}
            self._store(key, gone)
            self._ending[key] = 2
            return gone
        del self._objects[key]
        self._ending.pop(key, None)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def _collect(self, key: tuple[str, str, str, str]) -> None:
        """What the collector of garbage does, a few looks later: there are no pods here that hold it up."""
        if key not in self._ending:
            return
        self._ending[key] -= 1
        metadata = self._objects[key]["metadata"]
        if self._ending[key] == 0 and "foregroundDeletion" in metadata.get("finalizers", []):
            left = copy.deepcopy(self._objects[key])
            left["metadata"]["finalizers"] = [one for one in metadata["finalizers"] if one != "foregroundDeletion"]
            self._store(key, left)
        if self._ending[key] == 0:
            del self._ending[key]
            if not self._objects[key]["metadata"].get("finalizers"):
                del self._objects[key]

    def _store(self, key: tuple[str, str, str, str], thing: Object) -> None:
        self._version += 1
        thing["metadata"]["resourceVersion"] = str(self._version)
        self._objects[key] = thing


SERVED_SPEC: dict[str, tuple[str, ...]] = {"Node": ("none",)}
"""a node keeps the status that it is made with"""


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return copy.deepcopy(merged)


def _at(thing: Any, way: tuple[str, ...]) -> Any:
    for step in way:
        thing = (thing or {}).get(step)
    return thing
