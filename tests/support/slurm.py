"""A real Slurm for tests: munged, slurmctld, a slurmd for each node name, and slurmrestd, in a temporary folder on 127.0.0.1.
If asked for, also slurmdbd with a MariaDB.

Several slurmd run on one host because each is told its name (-N) and has a port of its own. All of them end with the process
that started them, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.conftest import ROOT

NODES = ("gpu-1", "gpu-2", "gpu-3")
MEMORY = Path("/sys/fs/cgroup/memory")
"""where version 1 of cgroups is"""
_PROGRAMS = ("munged", "slurmctld", "slurmd", "slurmrestd", "scontrol", "setpriv")
_ACCOUNTING = ("mariadbd", "mariadb-install-db", "slurmdbd", "sacct")
_START_S = 40.0


def missing(*, accounting: bool = False) -> list[str]:
    """Programs that are not installed."""
    asked = (*_PROGRAMS, *(_ACCOUNTING if accounting else ()))
    return [name for name in asked if shutil.which(name, path=_PATH) is None]


_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def samples(url: str, token: Path | None = None) -> Callable[[Path], list[str]]:
    """The lines of slurm.conf for the scripts of ``deploy/slurm``: as they are, but for where the service is. ``token``: what
    the controller's epilog sends.
    """

    def lines(folder: Path) -> list[str]:
        for name in ("common.sh", "prolog.sh", "epilog.sh", "epilogslurmctld.sh", "healthcheck.sh"):
            shutil.copy(ROOT / "deploy" / "slurm" / name, folder)
        common = folder / "common.sh"
        here = f"DIAGNOSE_URL={url}\nDIAGNOSE_RUN={folder}/run\nexport SLURM_CONF={folder}/slurm.conf\n"
        if token is not None:
            here += f': "${{DIAGNOSE_TOKEN_FILE:={token}}}"\n'
        common.write_text(here + common.read_text())
        return [
            f"Prolog={folder}/prolog.sh",
            f"Epilog={folder}/epilog.sh",
            f"EpilogSlurmctld={folder}/epilogslurmctld.sh",
        ]

    return lines


class Slurm:
    """One cluster."""

    def __init__(
        self,
        nodes: tuple[str, ...] = NODES,
        more: Callable[[Path], Sequence[str]] | None = None,
        *,
        accounting: bool = False,
        memory_mb: int = 0,
    ) -> None:
        """``more``: lines of slurm.conf, made when the folder is known, in the place of ours on the same parameter.
        ``accounting``: with slurmdbd, and a database of its own. ``memory_mb``: of each node; cgroups give a job no more of it
        than it asked for.
        """
        self.accounting, self.memory_mb = accounting, memory_mb
        self._database = _free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="diagnose-slurm-", dir="/tmp"))
        self.folder.chmod(0o755)  # slurmrestd runs as nobody
        self.nodes = nodes
        self.configuration = self.folder / "slurm.conf"
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(self.configuration), "LC_ALL": "C"}
        (self.folder / "spool").mkdir()
        (self.folder / "state").mkdir()
        (self.folder / "munge.key").write_bytes(secrets.token_bytes(1024))
        (self.folder / "munge.key").chmod(0o400)
        (self.folder / "jwt.key").write_bytes(secrets.token_bytes(32))
        (self.folder / "jwt.key").chmod(0o600)
        self._configure(more(self.folder) if more is not None else ())

    def _configure(self, more: Sequence[str]) -> None:
        here, folder = socket.gethostname().partition(".")[0], self.folder
        lines = [
            "ClusterName=test",
            f"SlurmctldHost={here}(127.0.0.1)",
            f"SlurmctldPort={_free_port()}",
            f"SlurmUser={self.user}",
            f"SlurmdUser={self.user}",
            # A requeued job waits until its old credential has expired: not two minutes, for a test.
            f"AuthInfo=socket={folder}/munge.socket,cred_expire=5",
            "AuthType=auth/munge",
            "AuthAltTypes=auth/jwt",
            f"AuthAltParameters=jwt_key={folder}/jwt.key",
            "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool/%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid",
            f"SlurmdPidFile={folder}/%n.pid",
            f"SlurmctldLogFile={folder}/slurmctld.log",
            f"SlurmdLogFile={folder}/%n.log",
            "ProctrackType=proctrack/pgid",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "SelectType=select/linear",
            "SchedulerType=sched/backfill",
            "SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=100000",
            "SlurmdParameters=config_overrides",
            "ReturnToService=1",
            "KillWait=1",
        ]
        memory = f" RealMemory={self.memory_mb}" if self.memory_mb else ""
        if self.memory_mb:
            more = ["TaskPlugin=task/cgroup", "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU_Memory", *more]
            # What is beyond a job's memory cannot go to swap.
            limits = "ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\nAllowedSwapSpace=0\n"
            (folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\n{limits}")
        lines += [
            f"NodeName={name} NodeAddr=127.0.0.1 NodeHostname={here} Port={_free_port()} CPUs=1{memory}" for name in self.nodes
        ]
        lines.append(f"PartitionName=all Nodes={','.join(self.nodes)} Default=YES State=UP")
        if self.accounting:
            port = _free_port()
            self._configure_accounting(port)
            lines += [
                "AccountingStorageType=accounting_storage/slurmdbd",
                "AccountingStorageHost=127.0.0.1",
                f"AccountingStoragePort={port}",
                f"AccountingStoragePass={folder}/munge.socket",
            ]
        own = {line.partition("=")[0] for line in more}
        kept = [line for line in lines if line.partition("=")[0] not in own]  # no parameter may be there twice
        self.configuration.write_text("\n".join([*kept, *more]) + "\n")

    def _configure_accounting(self, port: int) -> None:
        folder = self.folder
        lines = [
            "AuthType=auth/munge",
            f"AuthInfo=socket={folder}/munge.socket",
            "AuthAltTypes=auth/jwt",
            f"AuthAltParameters=jwt_key={folder}/jwt.key",
            "DbdHost=localhost",
            "DbdAddr=127.0.0.1",
            f"DbdPort={port}",
            f"SlurmUser={self.user}",
            "StorageType=accounting_storage/mysql",
            "StorageHost=127.0.0.1",
            f"StoragePort={self._database}",
            "StorageUser=slurm",
            "StoragePass=slurm",
            f"LogFile={folder}/slurmdbd.log",
            f"PidFile={folder}/slurmdbd.pid",
        ]
        configuration = folder / "slurmdbd.conf"
        configuration.write_text("\n".join(lines) + "\n")
        configuration.chmod(0o600)

    # --- daemons

    def start_accounting(self) -> None:
        """What it stores need not outlive a power cut: that saves seconds."""
        data, reach = f"{self.folder}/database", f"--socket={self.folder}/database.socket"
        quick = ["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--innodb-buffer-pool-size=32M"]
        where = ["--no-defaults", f"--datadir={data}", f"--user={self.user}", "--innodb-log-file-size=8M"]
        self.run("mariadb-install-db", *where, "--auth-root-authentication-method=normal", "--skip-test-db")
        listen = [
            reach,
            "--bind-address=127.0.0.1",
            f"--port={self._database}",
            "--skip-name-resolve",
            f"--pid-file={data}/pid",
        ]
        self._start("mariadbd", "mariadbd", *where, *quick, *listen)
        grant = "create user slurm@'127.0.0.1' identified by 'slurm'; grant all on slurm_acct_db.* to slurm@'127.0.0.1';"
        ask = ["mariadb", "--no-defaults", reach, "-u", "root", "-e"]
        self._until(lambda: "1" in self.run(*ask, "select 1", check=False), "mariadbd")
        self.run(*ask, f"create database slurm_acct_db; {grant}")
        self.start_slurmdbd()

    def start_slurmdbd(self) -> None:
        self._start("slurmdbd", "slurmdbd", "-D")
        self._until(
            lambda: (
                "test" in self.run("sacctmgr", "-n", "show", "cluster", check=False)
                or self.run("sacctmgr", "-i", "add", "cluster", "test", check=False)
            ),
            "slurmdbd",
        )

    def start(self) -> Slurm:
        key, folder = self.folder / "munge.key", self.folder
        self._start(
            "munged", "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket",
            f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/munged.seed", f"--log-file={folder}/munged.log",
        )  # fmt: skip
        self._until(lambda: (folder / "munge.socket").exists(), "munged")
        if self.accounting:
            self.start_accounting()
        self.start_controller()
        for name in self.nodes:
            self.start_node(name)
        self._until(lambda: self.run("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * len(self.nodes), "slurmd")
        self.start_rest()
        return self

    def start_node(self, name: str) -> None:
        self._start(name, "slurmd", "-D", "-N", name)

    def start_controller(self) -> None:
        self._start("slurmctld", "slurmctld", "-D")
        self._until(lambda: " is UP" in self.run("scontrol", "ping", check=False), "slurmctld")

    def start_rest(self) -> None:
        # It refuses to be root, or Slurm's own user. Without a word of what it loads it wants an accounting database.
        as_other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        plugins = "openapi/v0.0.38,openapi/v0.0.37" + (",openapi/dbv0.0.38" if self.accounting else "")
        words = ["slurmrestd", "-a", "rest_auth/jwt", "-s", plugins, "-f", str(self.configuration), f"127.0.0.1:{self.port}"]
        self._start("slurmrestd", *as_other, *words, SLURM_JWT="daemon")
        self._until(self._rest_listens, "slurmrestd")

    def kill(self, name: str) -> None:
        """As a machine that lost its power."""
        process = self._running.pop(name)
        process.kill()
        process.wait(10)

    def kill_node(self, name: str, job_id: str) -> None:
        """The same, with all that runs of a job on that node alone."""
        self.kill(name)
        steps = [
            pid
            for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
            if _title(pid).startswith(f"slurmstepd: [{job_id}.")
        ]
        for pid in [*steps, *(one for step in steps for one in _below(step))]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self, name: str) -> None:
        """As systemd does: it saves what it knows."""
        process = self._running.pop(name)
        process.terminate()
        process.wait(60)

    def stop(self) -> None:
        with contextlib.suppress(AssertionError, subprocess.SubprocessError):
            if "slurmctld" in self._running:
                self.run("scancel", "--user", self.user, check=False)
                self._until(lambda: not self.run("squeue", "-h", check=False).strip(), "the end of the jobs", 10)
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        self._running.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in self.nodes if self.memory_mb else ():
            with contextlib.suppress(OSError):
                (MEMORY / f"slurm_{name}").rmdir()

    # --- what a person types

    def run(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(words, capture_output=True, text=True, env=self.environment, timeout=30, cwd=self.folder)
        assert done.returncode == 0 or not check, f"{words}: {done.stderr}{done.stdout}"
        return done.stdout

    def token(self, lifespan_s: int = 600) -> str:
        return self.run("scontrol", "token", f"lifespan={lifespan_s}", f"username={self.user}").partition("=")[2].strip()

    def as_user(self, number: int, *words: str) -> str:
        """What another user types."""
        return self.run("setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups", *words)

    def submit(self, script: str, *words: str) -> str:
        path = self.folder / f"{secrets.token_hex(4)}.sh"
        path.write_text("#!/bin/sh\n" + script)
        return self.run("sbatch", "--parsable", "-o", str(self.folder / "%j.out"), *words, str(path)).strip()

    def job(self, job_id: str) -> dict[str, str]:
        """The plain fields of a job whose name is ours."""
        words = self.run("scontrol", "-o", "show", "job", job_id).split()
        return {name: value for name, _, value in (word.partition("=") for word in words)}

    def node(self, name: str) -> dict[str, str]:
        said = self.run("scontrol", "-o", "show", "node", name)
        fields = {field: value for field, _, value in (word.partition("=") for word in said.split())}
        return {**fields, "Reason": said.partition(" Reason=")[2].rpartition(" [")[0]}

    def wait(self, job_id: str, *states: str, seconds: float = 30) -> dict[str, str]:
        self._until(lambda: self.job(job_id)["JobState"] in states, f"job {job_id} to be {states}", seconds)
        return self.job(job_id)

    def output(self, job_id: str) -> str:
        path = self.folder / f"{job_id}.out"
        return path.read_text() if path.exists() else ""

    def wait_for(self, job_id: str, words: str) -> None:
        """Until the job has printed these words: Slurm calls it running before its first command has run."""
        self._until(lambda: words in self.output(job_id), f"{words!r} from job {job_id}")

    def reset(self) -> None:
        """As it was: no jobs, all nodes in service."""
        self.run("scancel", "--user", self.user, check=False)
        self._until(lambda: not self.run("squeue", "-h").strip(), "the end of the jobs")
        self._until(self._in_service, "idle nodes")

    def _in_service(self) -> bool:
        """Are all nodes idle? Those that are drained are resumed, which Slurm refuses while they still change."""
        for name in self.nodes:
            if "DRAIN" in self.node(name)["State"]:
                self.run("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)
        return set(self.run("sinfo", "-h", "-N", "-o", "%T").split()) == {"idle"}

    # --- processes

    def _start(self, name: str, *words: str, **environment: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self._running[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**self.environment, **environment},
                cwd=self.folder,
                start_new_session=True,
            )

    def _rest_listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def _until(self, done: object, what: str, seconds: float = _START_S) -> None:
        assert callable(done)
        until = time.monotonic() + seconds
        while not done():
            dead = [name for name, process in self._running.items() if process.poll() is not None]
            assert not dead, f"{dead} ended: {self._said(dead)}"
            assert time.monotonic() < until, f"waited {seconds:g} s for {what}: {self._said(['slurmctld'])}"
            time.sleep(0.1)

    def _said(self, names: list[str]) -> str:
        return "".join(
            (self.folder / f"{name}.out").read_text()[-1500:] for name in names if (self.folder / f"{name}.out").exists()
        )


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def _below(pid: int) -> list[int]:
    """All processes that it has started, and theirs."""
    try:
        found = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*found, *(one for child in found for one in _below(child))]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
