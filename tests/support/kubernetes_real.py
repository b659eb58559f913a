"""A real kube-apiserver for tests, where somebody has built one: DIAGNOSE_KUBERNETES names a folder with kube-apiserver and
kube-controller-manager; etcd is in it or installed. docs/kubernetes.md says how they are built from Debian's source package.

There are no nodes and no operators: the controllers of Jobs and of garbage are real, what pods do is written into status.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.kubernetes_fake import SERVED, Request

FOLDER = Path(os.environ.get("DIAGNOSE_KUBERNETES", "/nowhere"))
_PROGRAMS = ("kube-apiserver", "kube-controller-manager")
_START_S = 60.0


def available() -> bool:
    return all((FOLDER / name).exists() for name in _PROGRAMS) and _etcd() is not None


def _etcd() -> str | None:
    return shutil.which("etcd", path=f"{FOLDER}:{os.environ.get('PATH', os.defpath)}")


class Real:
    """One server, with its etcd."""

    suspends = False
    """Jobs can since 1.21; Debian's source is 1.20"""

    def __init__(self, controllers: str = "job,garbagecollector") -> None:
        self._controllers = controllers
        self._folder = Path(tempfile.mkdtemp(prefix="diagnose-kubernetes-", dir="/tmp"))
        self.tokens = {"admin": "admin"}
        self.requests: list[Request] = []
        self._running: list[subprocess.Popen[bytes]] = []
        self._tls: ssl.SSLContext | None = None
        port = _free_port()
        self.url = f"https://127.0.0.1:{port}"
        self.ca = self._folder / "apiserver.crt"
        self.kubeconfig = self._folder / "kubeconfig"
        self._start(port)

    def _start(self, port: int) -> None:
        folder, etcd, peer = self._folder, _free_port(), _free_port()
        (folder / "tokens").write_text(
            'admin,admin,admin,"system:masters"\n'
            'diagnose,system:serviceaccount:diagnose:diagnose,diagnose,"system:serviceaccounts,system:authenticated"\n'
        )
        subprocess.run(["openssl", "genrsa", "-out", str(folder / "accounts.key"), "2048"], check=True, capture_output=True)
        store = f"http://127.0.0.1:{etcd}"
        self._run(
            _etcd() or "etcd",
            f"--data-dir={folder}/etcd",
            f"--listen-client-urls={store}",
            f"--advertise-client-urls={store}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
        )
        self._run(
            str(FOLDER / "kube-apiserver"),
            f"--etcd-servers={store}",
            f"--cert-dir={folder}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--token-auth-file={folder}/tokens",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder}/accounts.key",
            f"--service-account-signing-key-file={folder}/accounts.key",
            "--disable-admission-plugins=ServiceAccount",
        )
        self._until(self._ready)
        for group, version, plural in SERVED:
            if ("." in group and not group.endswith("k8s.io")) or group.endswith(".x-k8s.io"):
                self._define(group, version, plural)
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": {"server": self.url, "insecure-skip-tls-verify": True}}],
                    "users": [{"name": "u", "user": {"token": "admin"}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "c",
                }
            )
        )
        self._control()
        self._until(self._controlled)

    def _control(self) -> None:
        self._run(
            str(FOLDER / "kube-controller-manager"),
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={self._controllers}",
            "--leader-elect=false",
            "--secure-port=0",
            "--port=0",
        )

    def _controlled(self) -> bool:
        """Right after the server it may find something missing there, and ends. On a cluster it is started again, too."""
        if self._running[-1].poll() is not None:
            self._running.pop()
            self._control()
        return "Caches are synced for garbage collector" in (self._folder / "kube-controller-manager.log").read_text()

    def _run(self, *words: str) -> None:
        with (self._folder / f"{Path(words[0]).name}.log").open("wb") as log:
            # Ends with the process that started it, however that ends.
            command = ["setpriv", "--pdeathsig", "KILL", *words]
            self._running.append(subprocess.Popen(command, stdout=log, stderr=log))

    def _ready(self) -> bool:
        if not self.ca.exists():
            return False
        try:
            self._tls = ssl.create_default_context(cafile=str(self.ca))
            return "ok" in self._sent("GET", "/readyz", None)[1]
        except (OSError, ssl.SSLError):
            return False

    def _until(self, holds: Any) -> None:
        deadline = time.monotonic() + _START_S
        while not holds():
            if time.monotonic() > deadline or any(one.poll() is not None for one in self._running):
                said = self.said()
                self.stop()
                raise RuntimeError(f"no API server:\n{said}")
            time.sleep(0.2)

    def said(self) -> str:
        """The ends of its logs."""
        return "\n".join(path.read_text()[-2000:] for path in self._folder.glob("*.log"))

    def _define(self, group: str, version: str, plural: str) -> None:
        kind = SERVED[group, version, plural].kind
        open_ = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        schema = {"type": "object", "properties": {"spec": open_, "status": open_}}
        body = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": plural, "kind": kind},
                "versions": [
                    {
                        "name": version,
                        "served": True,
                        "storage": True,
                        "subresources": {"status": {}},
                        "schema": {"openAPIV3Schema": schema},
                    }
                ],
            },
        }
        code, said = self._sent("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json.dumps(body).encode())
        assert code == 201, said
        self._until(lambda: self._sent("GET", f"/apis/{group}/{version}/{plural}", None)[0] == 200)

    def _sent(self, method: str, path: str, body: bytes | None) -> tuple[int, str]:
        request = urllib.request.Request(self.url + path, body, {"Authorization": "Bearer admin"}, method=method)
        request.add_header("Content-Type", "application/merge-patch+json" if method == "PATCH" else "application/json")
        try:
            with urllib.request.urlopen(request, timeout=20, context=self._tls) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def stop(self) -> None:
        for one in reversed(self._running):
            one.send_signal(signal.SIGKILL)
            one.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _free_port() -> int:
    for _ in range(50):
        port = 20000 + secrets.randbelow(12000)  # below those that the kernel hands out
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)):
                return port
    raise RuntimeError("no port is free")
