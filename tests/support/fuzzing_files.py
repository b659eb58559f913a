"""Parsers of what others wrote: whole logs, dumps, checkpoints, what schedulers printed, signed tokens."""

from __future__ import annotations

import io
import json
import pickle
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from diagnose.checkpoints import archives, manifest, tensors
from diagnose.job import Job
from diagnose.reading.dumps import documents
from diagnose.reading.sources import Source
from diagnose.study import kubernetes, sacct
from service.sign_in import issuer
from tests.support.logs import shipped_matcher

_ROOT = Path(__file__).parents[2]
_LOGS = _ROOT / "fixtures" / "logs"
_NOTICED = "cuda_oom.log", "nccl_timeout.log", "assertion.log", "attribute.log"
_PIECE = 16_000
_SAFETENSORS = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"format":"pt"}}'


def _log(body: bytes) -> None:
    """The whole path: from bytes to a report."""
    job = Job("job", [Source("rank0.log", None)], shipped_matcher())
    middle = len(body) // 2
    job.feed(0, body[:middle])
    job.feed(0, body[middle:])
    job.close(0)
    job.report().as_json()


def _logs() -> list[bytes]:
    names = sorted(path for path in _LOGS.iterdir() if path.is_file())
    logs = [path.read_bytes()[-_PIECE:] for path in names[:: max(1, len(names) // 12)]]
    lines = logs[0].decode("utf-8", "replace").splitlines()[-40:]
    dresses: list[Callable[[int, str], str]] = [
        lambda number, line: f"{number}:{line}",
        lambda number, line: f"{number:6d}\t{line}",
        lambda number, line: json.dumps({"log": line + "\n", "time": "2026-03-04T05:06:07.1Z", "rank": number}),
        lambda number, line: repr(line),
        lambda number, line: f'2026-03-04T05:06:07Z,INFO,"{line}"',
    ]
    return [*logs, *("".join(f"{wear(*one)}\n" for one in enumerate(lines, 1)).encode() for wear in dresses)]


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """It is removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="diagnose-fuzzing-")


def _file(name: str, read: Callable[[Path], object], body: bytes) -> None:
    path = Path(_folder().name) / name
    path.write_bytes(body)
    read(path)


def _text(read: Callable[[str], Any], body: bytes) -> None:
    list(read(body.decode("utf-8", "replace")))


def _saved() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps({"w": 1}))
        archive.writestr("model/data/0", bytes(64))
    return made.getvalue()


def _sealed() -> bytes:
    folder = Path(_folder().name) / "checkpoint"
    folder.mkdir(exist_ok=True)
    (folder / "weights.bin").write_bytes(bytes(100))
    return manifest.text_of(manifest.seal(folder, 7))


_ENTRY = {
    "frames": [{"name": "step", "filename": "/app/train.py", "line": 88}], "record_id": 7, "pg_id": 0,
    "process_group": ["0", "default_pg"], "collective_seq_id": 7, "p2p_seq_id": 0, "op_id": 7, "is_p2p": False,
    "profiling_name": "nccl:all_reduce", "time_created_ns": 1_700_000_000_000_000_007, "input_sizes": [[1024, 8]],
    "input_dtypes": ["BFloat16"], "state": "scheduled", "retired": False, "timeout_ms": 600_000,
}  # fmt: skip
_RECORDER = {
    "version": "2.10",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
    "pg_status": {"0": {"last_enqueued_collective": 8, "last_completed_collective": 6}},
    "entries": [_ENTRY, {**_ENTRY, "state": "completed", "retired": True}],
}
_SPY = [{"pid": 1, "thread_id": 2, "thread_name": "MainThread", "active": True, "owns_gil": True, "os_thread_id": 3,
         "frames": [{"name": "wait", "filename": "a.py", "short_filename": "a.py", "line": 7, "locals": None}]}]  # fmt: skip
_ERROR_FILE = {
    "message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1700000000"}}
}
_PODS = {"items": [
    {"kind": "Job", "metadata": {"name": "a", "namespace": "ml"}, "spec": {"template": {"spec": {"containers": []}}},
     "status": {"startTime": "2026-11-20T10:00:00Z", "conditions": [{"type": "Failed", "status": "True", "reason": "x",
                "lastTransitionTime": "2026-11-20T11:00:00Z"}]}},
    {"kind": "Pod", "metadata": {"name": "a-1", "namespace": "ml", "labels": {"job-name": "a"}}, "spec": {"nodeName": "gpu-1"},
     "status": {"containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}},
]}  # fmt: skip
_SACCT = {"jobs": json.loads((_ROOT / "tests" / "payloads" / "sacct.json").read_text())["jobs"][:3]}
_TOKEN = b"eyJhbGciOiJFUzI1NiIsImtpZCI6ImEifQ.eyJpc3MiOiJodHRwczovL3giLCJzdWIiOiJhIn0.AAAA"
_RAS = {"nccl_version": "2.28.3", "communicators": [{"hash": "0xa", "size": 2, "ranks": [{"rank": 0, "host": "gpu-1"}]}]}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _dump(kind: documents.Kind) -> Callable[[bytes], object]:
    return lambda body: documents.lines(kind, body, "/tmp/nccl_trace_rank_3")


FILE_PARSERS: dict[str, tuple[Callable[[bytes], object], Callable[[], list[bytes]]]] = {
    "log": (_log, _logs),
    "recorder pickle": (_dump("recorder-pickle"), lambda: [pickle.dumps(_RECORDER), pickle.dumps(_RECORDER, protocol=2)]),
    "recorder": (_dump("recorder"), lambda: [_json(_RECORDER)]),
    "error file": (_dump("error-file"), lambda: [_json(_ERROR_FILE)]),
    "py-spy": (_dump("py-spy"), lambda: [_json(_SPY)]),
    "ras": (_dump("ras"), lambda: [_json(_RAS)]),
    "sacct": (partial(_text, lambda text: sacct.read(text.splitlines(keepends=True), "sacct")),
              lambda: [(_ROOT / "tests" / "payloads" / "sacct.txt").read_bytes()[:_PIECE], _json(_SACCT)]),
    "kubectl": (partial(_text, lambda text: kubernetes.read([(text, "kubectl")])), lambda: [_json(_PODS)]),
    "manifest": (partial(_file, manifest.NAME, lambda path: manifest.read(path.parent)), lambda: [_sealed()]),
    "safetensors": (partial(_file, "a.safetensors", tensors.header),
                    lambda: [len(_SAFETENSORS).to_bytes(8, "little") + _SAFETENSORS + bytes(8)]),
    "torch archive": (partial(_file, "a.pt", lambda path: archives.check_file(path, read=True, passed=lambda _: None)),
                      lambda: [_saved()]),
    "signed token": (partial(_text, lambda text: [issuer.header_of(text), issuer.issuer_of(text)]), lambda: [_TOKEN]),
}  # fmt: skip
