"""The executors' file: what it says, who an order goes to, and how mistakes are told; and the executor that is a program."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from diagnose.errors import DiagnoseError
from service.acting.executors import nodecheck
from service.acting.executors.command import Command
from service.acting.executors.configuration import TYPES, choose, load, objections
from service.acting.executors.executor import KINDS, REBOOT, Order, Outcome, Problem
from service.acting.executors.http import Server
from service.acting.executors.kubernetes import Kubernetes
from service.acting.executors.kubernetes_nodes import Ways
from service.acting.executors.slurm import Slurm
from service.net.guarded import networks
from tests.conftest import ROOT, Run
from tests.support.receivers import Receiver

KEY = "0123456789abcdef0123456789abcdef"
WHOLE = """\
executors:
  - name: alps
    type: slurm
    jobs: {labels: {cluster: alps}}
    nodes: ['gpu-*']
    slurmrestd: {url: 'https://slurm.example:6820', user: diagnose, token_file: slurm.jwt, timeout: 10s}
    commands: {folder: /opt/slurm/bin, configuration: /etc/slurm/slurm.conf}
    patience: 5m
  - name: try
    type: slurm
    jobs: {job: 'test-*'}
    kinds: [restart, retry_later]
    dry_run: true
    commands: true
  - name: ops
    type: webhook
    url: https://ops.example/act
    secret_env: OPS_SECRET
  - {name: own, type: command, command: [/usr/local/bin/act, --site, x], timeout: 1m}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "executors.yaml"
    path.write_text(text)
    return path


def test_a_whole_file(tmp_path: Path) -> None:
    alps, attempt, ops, own = load(write(tmp_path, WHOLE))
    assert (alps.name, alps.kinds, alps.patience_s, alps.dry_run, alps.repeatable) == (
        "alps",
        KINDS | {REBOOT},
        300.0,
        False,
        True,
    )
    assert isinstance(alps.executor, Slurm)
    assert (attempt.kinds, attempt.dry_run) == ({"restart", "retry_later"}, True)
    assert (ops.type, ops.repeatable) == ("webhook", True)
    assert (own.type, own.repeatable) == ("command", False)


ALPS = {"cluster": "alps"}


@pytest.mark.parametrize(
    ("order", "name"),
    [
        pytest.param(Order(KEY, "restart", "8812", 1, ALPS), "alps", id="by-label"),
        pytest.param(Order(KEY, "isolate_and_restart", "8812", 1, ALPS, ("gpu-1",)), "alps", id="by-label-and-node"),
        pytest.param(
            Order(KEY, "isolate_and_restart", "8812", 1, ALPS, ("gpu-1", "login-1")), "ops", id="a-node-that-is-not-its"
        ),
        pytest.param(Order(KEY, "isolate", nodes=("gpu-1",)), "alps", id="a-node-alone"),
        pytest.param(Order(KEY, "isolate", nodes=("login-1",)), "ops", id="no-node-of-those"),
        pytest.param(Order(KEY, "restart", "test-1", 1), "try", id="by-name"),
        pytest.param(Order(KEY, "rollback_and_skip", "test-1", 1), "ops", id="a-kind-that-it-is-not-given"),
        pytest.param(Order(KEY, "restart", "test-1", 1, ALPS), "alps", id="the-first-that-fits"),
        pytest.param(Order(KEY, "fix_code", "test-1", 1, ALPS), None, id="what-nobody-carries-out"),
    ],
)
def test_whose_an_order_is(tmp_path: Path, order: Order, name: str | None) -> None:
    found = choose(load(write(tmp_path, WHOLE)), order)
    assert (found.name if found else None) == name


def test_who_is_told_its_jobs_only_takes_no_orders_about_nodes(tmp_path: Path) -> None:
    text = "executors:\n  - {name: a, type: slurm, commands: true, jobs: {labels: {cluster: alps}}}\n"
    assert choose(load(write(tmp_path, text)), Order(KEY, "isolate", nodes=("gpu-1",))) is None


NAMED = "executors:\n  - name: a\n    "


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        pytest.param("", None, "the file names no executors", id="empty"),
        pytest.param("executors: []\n", 1, "there are none", id="none"),
        pytest.param("executors: 3\n", 1, "is no list", id="no-list"),
        pytest.param("executor:\n  - {name: a}\n", 2, "there is no such clause", id="misspelt"),
        pytest.param("executors:\n  - [a]\n", 2, "", id="a-list-in-a-list"),
        pytest.param(NAMED + "type: pbs\n", 3, "'pbs' is no type; use slurm, webhook", id="no-type"),
        pytest.param("executors:\n  - {type: slurm, commands: true}\n", 2, "name: is missing", id="no-name"),
        pytest.param("executors:\n  - {name: 'a b/c', type: slurm, commands: true}\n", 2, "is no word", id="bad-name"),
        pytest.param(NAMED + "type: slurm\n", 3, "no way to reach Slurm", id="slurm-of-nothing"),
        pytest.param(NAMED + "type: slurm\n    comands: true\n", 4, "no such option", id="misspelt-option"),
        pytest.param(NAMED + "type: slurm\n    commands: maybe\n", 4, "neither true nor false", id="neither"),
        pytest.param(NAMED + "type: slurm\n    commands: true\n    kinds: [revolve]\n", 5, "nothing that it does", id="kind"),
        pytest.param(NAMED + "type: slurm\n    commands: true\n    patience: soon\n", 5, "no duration", id="duration"),
        pytest.param(NAMED + "type: slurm\n    commands: true\n    at_once: 0\n", 5, "whole number", id="at-once"),
        pytest.param(NAMED + "type: slurm\n    commands: true\n    jobs: {user: x}\n", 5, "no such option", id="jobs"),
        pytest.param(NAMED + "type: slurm\n    commands: true\n    spares: a=b\n", 5, "no name of a reservation", id="spares"),
        pytest.param(
            NAMED + "type: slurm\n    slurmrestd: {url: 'https://x', user: y, token_env: T}\n    spares: held\n",
            5, "slurmrestd changes no reservation; write also   commands: true", id="spares-by-rest",
        ),
        pytest.param(NAMED + "type: slurm\n    commands: {timeout: 0s}\n", 4, "no time at all", id="no-time"),
        pytest.param(NAMED + "type: slurm\n    slurmrestd: {url: 'https://x', user: y}\n", 4, "token_file", id="no-token"),
        pytest.param(
            NAMED + "type: slurm\n    slurmrestd:\n      url: https://x\n      user: y\n      token: eyJ\n",
            7, "secrets do not belong in this file; give token_file", id="token-in-it",
        ),
        pytest.param(
            NAMED + "type: slurm\n    slurmrestd: {url: 'https://u:hunter2@x', user: y, token_env: T}\n",
            4, "slurmrestd.url: https://x/…: not an address", id="password",
        ),
        pytest.param(NAMED + "type: webhook\n    url: https://x/\n", 2, "secret_file: is missing", id="no-secret"),
        pytest.param(
            NAMED + "type: webhook\n    secret_env: S\n    url: https://127.0.0.1/\n", 5, "address is not public", id="private"
        ),
        pytest.param(NAMED + "type: webhook\n    secret_env: S\n    url: ftp://x/\n", 5, "can be sent to this URL", id="ftp"),
        pytest.param(
            NAMED + "type: webhook\n    secret_env: S\n    url: https://x/\n    networks: [10.0.0.0/99]\n",
            5, "10.0.0.0/99", id="networks",
        ),
        pytest.param(NAMED + "type: command\n", 2, "there is none", id="no-command"),
        pytest.param(
            NAMED + "type: slurm\n    commands: true\n    check: {command: [check, --all]}\n",
            5, "no nodes are given", id="check",
        ),
        pytest.param(NAMED + "type: command\n    command: /bin/true\n", 4, "no list of words", id="command-of-a-shell"),
        pytest.param(WHOLE.replace("name: ops", "name: alps"), 15, "two executors alps", id="twice"),
        pytest.param("executors: {\n", 2, "not valid YAML", id="no-yaml"),
    ],
)  # fmt: skip
def test_mistakes_have_a_line_and_a_remedy(tmp_path: Path, text: str, line: int | None, what: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(DiagnoseError) as told:
        load(path)
    assert told.value.where == (f"{path}:{line}" if line else str(path)), told.value
    assert what in str(told.value)
    assert told.value.remedy
    assert "hunter2" not in str(told.value)


def test_all_mistakes_are_shown_at_once(tmp_path: Path) -> None:
    wrong = objections(write(tmp_path, NAMED + "type: slurm\n    comands: true\n    dry_run: perhaps\n    nodes: x\n"))
    assert len(wrong) >= 3


def test_networks_of_the_service_count_for_executors_too(tmp_path: Path) -> None:
    path = write(tmp_path, NAMED + "type: webhook\n    secret_env: S\n    url: http://10.1.2.3/\n")
    with pytest.raises(DiagnoseError):
        load(path)
    assert load(path, networks("10.0.0.0/8"))[0].name == "a"


def test_check(diagnose: Run, tmp_path: Path) -> None:
    write(tmp_path, "executors:\n  - {name: own, type: command, command: [/bin/true], dry_run: true, kinds: [restart]}\n")
    done = diagnose("executors", "check", "executors.yaml")
    assert (done.returncode, done.stdout) == (0, "own (command, dry run): restart: ready\n")
    write(tmp_path, "executors:\n  - {name: own, type: command, command: [/nowhere/act]}\n")
    done = diagnose("executors", "check", DIAGNOSE_EXECUTORS="executors.yaml")
    assert done.returncode == 1
    assert "/nowhere/act is no program here" in done.stdout
    write(tmp_path, "executors:\n  - {name: own, type: pbs}\n")
    done = diagnose("executors", "check", "executors.yaml")
    assert (done.returncode, done.stdout.startswith("executors.yaml:2: ")) == (1, True)
    assert diagnose("executors", "check").returncode == 2


CLUSTER = "executors:\n  - {{name: own, type: kubernetes, url: 'https://api', token_file: t, isolate_by: {}}}\n"


def test_ways_to_isolate_are_read(tmp_path: Path) -> None:
    told = "[taint, {label: {example.com/broken: 'true'}}, {condition: example.com/DiagnoseIsolated}]"
    (own,) = load(write(tmp_path, CLUSTER.format(told)))
    assert isinstance(own.executor, Kubernetes)
    assert own.executor.ways == Ways(False, True, {"example.com/broken": "true"}, "example.com/DiagnoseIsolated")
    assert "hold" not in own.kinds
    (own,) = load(write(tmp_path, CLUSTER.format("[taint], hold: true")))
    assert own.kinds == KINDS | {"hold"}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("[reboot]", "is no way to isolate"),
        ("[{label: {'a b': x}}]", "is no label"),
        ("[{label: {kubernetes.io/hostname: x}}]", "is a label of Kubernetes itself"),
        ("[{label: {node.kubernetes.io/x: x}}]", "is a label of Kubernetes itself"),
        ("[{condition: Ready}]", "is the kubelet's own condition"),
        ("[{condition: 'a b'}]", "is no type of a condition"),
        ("[{condition: A}, {condition: B}]", "there are 2 conditions"),
        ("[]", "there is no way"),
    ],
)
def test_ways_that_cannot_be_are_refused(tmp_path: Path, told: str, said: str) -> None:
    (error,) = objections(write(tmp_path, CLUSTER.format(told)))
    assert said in str(error)


def test_types_are_documented() -> None:
    text = (ROOT / "docs" / "executors.md").read_text()
    for name, kind in TYPES.items():
        assert f"type: {name}" in text
        for option in kind.options:
            assert option in text, f"{name}: {option}"


def test_the_sample_is_read() -> None:
    (slurm,) = load(ROOT / "deploy" / "executors.yaml")
    assert (slurm.type, slurm.dry_run, slurm.kinds) == ("slurm", True, KINDS | {REBOOT})


# --- a program


def act(words: list[str], order: Order | None = None, **more: Any) -> Outcome:
    dry_run = more.pop("dry_run", False)
    return asyncio.run(Command(words, **more).carry_out(order or Order(KEY, "restart", "8812", 1), dry_run=dry_run))


@pytest.mark.parametrize(
    ("script", "state", "may_retry", "what"),
    [
        pytest.param("echo one; echo two", "succeeded", False, "two", id="done"),
        pytest.param("true", "succeeded", False, "/bin/sh has done it", id="silent"),
        pytest.param("echo out; echo no such job >&2; exit 3", "failed", False, "ended with 3: no such job", id="failed"),
        pytest.param("echo busy; exit 75", "failed", True, "ended with 75: busy", id="later"),
        pytest.param("kill -9 $$", "unknown", True, "ended by signal 9", id="killed"),
        pytest.param("echo begun; sleep 60", "unknown", True, "did not end in 0.5 s and was ended: begun", id="slow"),
        pytest.param(
            "printf 'a\\033[31mb\\000c\\377\\n\\n'", "succeeded", False, "a [31mb c\ufffd".replace("\ufffd", ""), id="hostile"
        ),
        pytest.param("sleep 60 & echo done", "succeeded", False, "done", id="leaves-a-child-with-its-pipes"),
        pytest.param("yes | head -c 5000000; echo; echo end", "succeeded", False, "y", id="says-too-much"),
    ],
)
def test_what_its_exit_status_means(script: str, state: str, may_retry: bool, what: str) -> None:
    began = time.monotonic()
    outcome = act(["/bin/sh", "-c", script], timeout_s=0.5 if "60" in script and "&" not in script else 20.0)
    assert (outcome.state, outcome.may_retry) == (state, may_retry), outcome
    assert what in outcome.what
    assert outcome.what.isprintable() or "\ufffd" in outcome.what
    assert time.monotonic() - began < 10


def test_the_order_is_on_its_standard_input_and_our_secrets_are_not_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIAGNOSE_TOKEN", "dgn_secret")
    order = Order(KEY, "isolate_and_restart", "8812", 1, ALPS, ("gpu-1",), why="Xid 79 $(touch owned); `id`")
    outcome = act(["/bin/sh", "-c", f"cat > {tmp_path}/order; env > {tmp_path}/env"], order)
    assert outcome.state == "succeeded"
    assert json.loads((tmp_path / "order").read_text()) == {"schema": "diagnose.order/1", "order": order.as_dict()}
    assert "dgn_secret" not in (tmp_path / "env").read_text()


def test_a_program_that_is_not_there() -> None:
    outcome = act(["/nowhere/act"])
    assert (outcome.state, outcome.may_retry) == ("failed", False)


def test_one_that_reads_nothing() -> None:
    long = Order(KEY, "restart", "8812", 1, {"x": "y" * 300_000})
    assert act(["/bin/true"], long).state == "succeeded"


def test_a_dry_run_starts_nothing(tmp_path: Path) -> None:
    outcome = act(["/bin/sh", "-c", f"touch {tmp_path}/ran"], dry_run=True)
    assert outcome.what == "would have: run /bin/sh for restart"
    assert not (tmp_path / "ran").exists()


def test_what_is_cut_off_is_ended_with_its_children(tmp_path: Path) -> None:
    act(["/bin/sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; wait"], timeout_s=0.5)
    pid = int((tmp_path / "pid").read_text())
    for _ in range(50):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().split()[2]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    os.kill(pid, 9)
    raise AssertionError("it went on")


# --- nodes that are tested first

VERDICT = {
    "schema": "diagnose.nodecheck/1",
    "kind": "verdict",
    "good": ["n1"],
    "faulty": ["n2"],
    "slow": [],
    "suspects": ["n3"],
}


def test_a_request_that_was_given_up_before_it_was_sent_is_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow look-up outlasts the time that we wait: "failed" must stay true. No name server can be made slow here."""
    lookup = socket.getaddrinfo

    def slow(*words: Any, **more: Any) -> Any:
        time.sleep(0.6)
        return lookup(*words, **more)

    receiver = Receiver()
    try:
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        with pytest.raises(Problem) as told:
            asyncio.run(Server(f"http://127.0.0.1:{receiver.port}", timeout_s=0.2).ask("POST", "/drain", body=b"{}"))
        assert told.value.state == "failed"
        time.sleep(0.5)
        assert receiver.got == []
    finally:
        receiver.close()


def check(script: str, nodes: tuple[str, ...] = ("n1", "n2", "n3"), timeout_s: float = 10.0) -> nodecheck.Tested:
    return asyncio.run(nodecheck.NodeCheck(["/bin/sh", "-c", script, "check", "{nodes}"], timeout_s).test(nodes))


def says(**changes: Any) -> str:
    return f"""echo 'srun: job 7 queued'; echo '{{"kind": "test"}}'; echo '{json.dumps(VERDICT | changes)}'; """


@pytest.mark.parametrize(
    ("script", "faulty", "said"),
    [
        pytest.param(says() + "exit 1", ("n2",), "3 nodes were tested: faulty: n2; suspects n3", id="one"),
        pytest.param(says(faulty=[], suspects=[]), (), "3 nodes were tested: none is faulty", id="none"),
        pytest.param(says(good=[], faulty=["n1", "n2", "n3"]), (), "none is faulty", id="nobody-passed"),
        pytest.param(says(faulty=["login-1", 3, None]), (), "none is faulty", id="who-was-not-asked-about"),
        pytest.param(says(faulty="n2"), (), "none is faulty", id="no-list"),
        pytest.param("echo salloc: error: busy >&2; exit 1", (), "ended with 1 and no verdict: salloc: error: busy", id="busy"),
        pytest.param('echo \'{"kind": "verdict"}\'', (), "no verdict", id="anothers-verdict"),
        pytest.param(says(good=["n8", "n9"], faulty=[], suspects=[]), (), "/bin/sh tested others", id="other-nodes"),
        pytest.param("sleep 60", (), "did not end in 1 s", id="slow"),
    ],
)
def test_what_a_test_of_nodes_says(script: str, faulty: tuple[str, ...], said: str) -> None:
    tested = check(script, timeout_s=1.0 if script == "sleep 60" else 10.0)
    assert tested.faulty == faulty
    assert said in tested.said
    assert (tested.verdict is None) == tested.said.startswith("not tested: ")


def test_the_nodes_are_one_word_and_their_names_are_names(tmp_path: Path) -> None:
    tested = check(f'echo "$#:$1" > {tmp_path}/words')
    assert (tmp_path / "words").read_text() == "1:n1,n2,n3\n"
    assert tested.verdict is None
    counted = nodecheck.NodeCheck(["/bin/sh", "-c", f'echo "$1" >> {tmp_path}/counts', "check", "--nodes={count}"])
    for some in (["n1"], ["n1", "n2"], ["n1", "n2", "n3"], ["n1", "n2", "n3", "n4"], ["n1", "n2", "n3", "n4", "n5"]):
        asyncio.run(counted.test(some))
    assert (tmp_path / "counts").read_text().split() == [f"--nodes={count}" for count in (3, 4, 4, 4, 5)]
    hostile = check(f"touch {tmp_path}/ran", ("n1", "--reservation=x"))
    assert "is not the name of a node" in hostile.said
    assert not (tmp_path / "ran").exists()
    absent = asyncio.run(nodecheck.NodeCheck(["/nowhere", "{nodes}"]).test(["n1"]))
    assert absent.said == "not tested: /nowhere is no program here"


def test_a_node_says_in_words_why_it_is_drained_and_where_to_read_more() -> None:
    page = "https://logs.example.org/ui/actions/12"
    order = Order.of(
        {"key": KEY, "kind": "isolate", "job": "8812", "attempt": 2, "why": "its kernel\nprinted Xid 79", "link": page}
    )
    assert order.reason == f"diagnose {KEY[:32]}: job 8812, attempt 2: its kernel printed Xid 79 {page}"
    wordy = Order.of({**order.as_dict(), "why": "a" * 500})
    assert (len(wordy.reason), wordy.reason.endswith(f"a {page}")) == (200, True)
