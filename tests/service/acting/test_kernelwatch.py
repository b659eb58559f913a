"""Lines of a node's kernel as findings: what counts, when it was, what hostile text does, and who may tell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import pytest
from pydantic import ValidationError

from diagnose.knowledge.rules import load
from service.acting.kernelwatch import _OF_THE_MACHINE, MOST_BYTES, MOST_LINES, HealthResult, of_check, of_kernel
from service.errors import TooLarge
from service.store import Store, findings
from tests.service.intake.test_streams import token
from tests.support.servers import Server

NOW = 1_800_000_000.0
AT = 1_795_168_800.0
"""2026-11-20T10:00:00Z"""
LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def names(*messages: str) -> list[str]:
    body = "".join(f"{AT + n} gpu-17 kernel: {message}\n" for n, message in enumerate(messages))
    return [one.name for one, _ in of_kernel("gpu-17", body.encode("utf-8", "surrogateescape"), NOW).findings]


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (LOST, "Xid79"),
        (
            "NVRM: Xid (0000:04:00): 63, Dynamic Page Retirement: New retired page, reboot to activate (0x00000000001a2b).",
            "Xid63",
        ),
        ("NVRM: Xid (PCI:0008:01:00): 145, RLW_REMAP Fatal XC1 i0 Link 02 (0x00000082 0x40)", "Xid145"),
        ("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", "GpuFellOffBus"),
        ("nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 41 LTSSM Fault Up", "SXid20034"),
        ("nvidia 0000:3b:00.0: AER: can't recover (no error_detected callback)", "GpuPCIe"),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)", "MemoryECC"),
        ("mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 7: be00000000800400", "MachineCheck"),
        ("{1}[Hardware Error]: event severity: fatal", "MachineCheck"),
        ("amdgpu 0000:c1:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block", "GpuMemory"),
    ],
)
def test_what_speaks_against_the_machine(message: str, name: str) -> None:
    assert names(message) == [name]


@pytest.mark.parametrize(
    "message",
    [
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python, MMU Fault: ENGINE GRAPHICS",
        "NVRM: Xid (PCI:0000:3b:00): 13, pid=4711, name=Fatal error, NVLink: fatal error",
        "NVRM: Xid (PCI:0000:3b:00): 45, pid=4711, name=python, Ch 00000010",
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        "NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 08 (0x004505c6 0x00000000)",
        "NVRM: Xid (PCI:0000:3b:00): 799, what nobody knows",
        "nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 12028, Non-fatal, Link 12 egress non-posted PRIV error (First)",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15",
        "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 8: 8c00004000010090",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
        "mce: CPU12: Core temperature above threshold, cpu clock throttled (total events = 812)",
        "Out of memory: Killed process 4711 (python) total-vm:412000000kB, anon-rss:390000000kB",
    ],
)
def test_what_a_program_causes_what_went_well_and_memory_that_ran_out_do_not(message: str) -> None:
    assert names(message) == []


@pytest.mark.parametrize(
    "message",
    [
        f"oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/user.slice/{LOST},task=python,pid=1,uid=1000",
        f"traps: {LOST}[4711] general protection fault ip:7f31",
        f"overlayfs: failed to resolve '/home/kim/x\\x0a{AT} gpu-17 kernel: {LOST}': -2",
        f"kernel: {LOST}",
        f" {LOST}",
        "NVRM: Xid (PCI:0000:3b:00): 79",
        "NVRM: Xid (PCI:0000:3b:00): \u0667\u0669, GPU has fallen off the bus.",
        "EDAC " + "x" * 900_000,
        "NVRM: " + "NVLink: " * 100_000,
        "\udcff\udcfe\0\0",
    ],
    ids=["control-group", "program", "path", "twice", "indented", "cut", "digits", "long", "again", "bytes"],
)
def test_words_of_users_within_a_line_are_not_the_kernels(message: str) -> None:
    assert names(message) == []


def test_what_stands_on_a_second_line_of_a_message_is_not_a_line() -> None:
    """As journalctl prints a message with a line's end in it."""
    body = f"2026-11-20T10:00:00+0000 gpu-17 kernel: overlayfs: failed to resolve '/x\n{' ' * 39} {LOST}\n"
    found = of_kernel("gpu-17", body.encode(), NOW)
    assert (found.findings, found.left_out) == ([], 0)


@pytest.mark.parametrize(
    "begin",
    [
        "2026-11-20T10:00:00+0000 gpu-17 kernel: ",
        "2026-11-20T11:00:00+01:00 gpu-17 kernel: ",
        "2026-11-20T10:00:00.000000Z gpu-17.example kernel: ",
        "2026-11-20T10:00:00,000000+00:00 ",
        "1795168800.000000 gpu-17 kernel: ",
        "2026-11-20T10:00:00+00:00 gpu-17 kernel: [812345.670123] ",
    ],
)
def test_each_is_of_its_moment(begin: str) -> None:
    ((finding, said),) = of_kernel("gpu-17", f"{begin}{LOST}\r\n".encode(), NOW).findings
    assert (finding.node, finding.source, finding.at, finding.ended) == ("gpu-17", "kernel-watch", AT, AT)
    assert said == LOST


@pytest.mark.parametrize(
    "begin",
    ["", "[   12.345678] ", "[Fri Nov 20 10:00:00 2026] ", "Nov 20 10:00:00 gpu-17 kernel: ", "2026-11-20T10:00:00 ",
     "2026-13-40T10:00:00Z "],
)  # fmt: skip
def test_without_a_time_and_its_zone_a_line_is_no_finding(begin: str) -> None:
    assert of_kernel("gpu-17", f"{begin}{LOST}".encode(), NOW).findings == []
    if begin in ("", "2026-13-40T10:00:00Z "):
        assert of_kernel("gpu-17", f"{begin}{LOST}".encode(), NOW).left_out == 1


def test_a_time_to_come_is_now() -> None:
    ((finding, _),) = of_kernel("gpu-17", f"2099-01-01T00:00:00Z {LOST}".encode(), NOW).findings
    assert finding.at == NOW


def test_what_is_said_twice_in_a_moment_counts_once_and_told_again_too(store: Store) -> None:
    body = f"{AT:.0f} gpu-17 kernel: {LOST}\n".encode() * 3
    for _ in range(2):
        found = of_kernel("gpu-17", body, NOW)
        store.write(lambda connection, found=found: findings.enter(connection, found.findings, found.over, "gpu-17", NOW))
    assert len(store.read(lambda connection: findings.of_node(connection, "gpu-17"))) == 1


def test_programs_xids_are_counted_and_too_many_lines_refused() -> None:
    found = of_kernel("gpu-17", f"{AT} gpu-17 kernel: NVRM: Xid (PCI:0000:3b:00): 31, pid=1".encode(), NOW)
    assert (found.left_out, "program" in str(found.why)) == (1, True)
    with pytest.raises(TooLarge):
        of_kernel("gpu-17", b"\n" * (MOST_LINES + 1), NOW)


def test_the_table_is_what_the_shipped_rules_isolate_for() -> None:
    rules = [one for one in load().rules if one.id.startswith("xid") and one.action == "isolate_and_restart"]
    isolated = {
        number
        for number in range(1000)
        if any(re.search(one.pattern, f"NVRM: Xid (PCI:0000:3b:00): {number}, x") for one in rules)
    }
    assert isolated == _OF_THE_MACHINE


# --- the site's own check


def result(status: int, said: str | None = None, hours: int = 10) -> HealthResult:
    return HealthResult.model_validate({"status": status, "since": f"2026-11-20T{hours}:00:00Z", "said": said})


def test_a_check_that_fails_is_a_finding_until_it_passes(store: Store) -> None:
    ((finding, said),) = of_check("gpu-17", result(3, "7 of 8 GPUs"), NOW).findings
    assert (finding.source, finding.name, finding.at, finding.ended) == ("health-check", "HealthCheck", AT, None)
    assert said == "exit status 3: 7 of 8 GPUs"
    for found in (of_check("gpu-17", result(3), NOW), of_check("gpu-17", result(0, hours=12), NOW)):
        store.write(lambda connection, found=found: findings.enter(connection, found.findings, found.over, "gpu-17", NOW))
    (row,) = store.read(lambda connection: findings.of_node(connection, "gpu-17"))
    assert row["ended"] == AT + 7200


@pytest.mark.parametrize(
    "change", [{"status": True}, {"status": 256}, {"status": "0"}, {"since": 5}, {"said": "x" * 10_001}, {"more": 1}], ids=str
)
def test_what_is_no_result_of_a_check_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        HealthResult.model_validate({"status": 1, "since": "2026-11-20T10:00:00Z", **change})


# --- who may tell


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("watched") / "data"
    roles = {
        "admin": ("--role", "admin"),
        "gpu-17": ("--role", "node", "--node", "gpu-17"),
        "shipper": ("--role", "ingest", "--node", "*"),
        "reader": ("--role", "read"),
        "operator": ("--role", "operate"),
    }
    tokens = {name: token(data, name, *words) for name, words in roles.items()}
    with Server(data) as running:
        running.environment |= tokens
        yield running


def tell(
    server: Server, who: str | None, what: str, body: bytes, kind: str = "text/plain", node: str = "gpu-17"
) -> httpx.Response:
    head = {"Content-Type": kind} | ({"Authorization": f"Bearer {server.environment[who]}"} if who is not None else {})
    return httpx.post(f"{server.url}/v1/nodes/{node}/findings/{what}", content=body, headers=head, timeout=60)


@pytest.mark.server
@pytest.mark.parametrize("what", ["kernel", "health-check"])
def test_only_the_nodes_own_token_or_an_administrators_tells(server: Server, what: str) -> None:
    when = datetime.now(UTC).isoformat(timespec="seconds")
    body, kind = f"{when} gpu-17 kernel: {LOST}\n".encode(), "text/plain"
    if what == "health-check":
        body, kind = f'{{"status": 1, "since": "{when}", "said": "7 of 8 GPUs"}}'.encode(), "application/json"
    told = {who: tell(server, who, what, body, kind).status_code for who in (None, "shipper", "reader", "operator")}
    assert told == {None: 401, "shipper": 403, "reader": 403, "operator": 403}
    assert tell(server, "gpu-17", what, body, kind, "gpu-18").status_code == 403
    for who in ("gpu-17", "admin"):
        answer = tell(server, who, what, body, kind)
        assert (answer.status_code, answer.json()["taken"]) == (201, 1)
    head = {"Authorization": f"Bearer {server.environment['admin']}"}
    node = httpx.get(f"{server.url}/v1/nodes/gpu-17", headers=head).json()
    assert node["state"] == "ok", "it isolates nobody alone"
    assert {one["source"] for one in node["findings"]} >= {"kernel-watch" if what == "kernel" else what}
    assert httpx.get(f"{server.url}/v1/nodes/gpu-18", headers=head).status_code == 404


@pytest.mark.server
def test_bodies_that_are_no_lines_or_too_many(server: Server) -> None:
    assert tell(server, "gpu-17", "kernel", b"\xff\x00\xfe" * 1000).json()["taken"] == 0
    assert tell(server, "gpu-17", "kernel", b"").status_code in (201, 422)
    assert tell(server, "gpu-17", "kernel", b"x\n" * 3000).status_code == 413
    assert tell(server, "gpu-17", "kernel", b"x" * (MOST_BYTES + 1)).status_code == 413
    assert tell(server, "gpu-17", "kernel", b'{"lines": 1}', "application/json").status_code == 422
    assert tell(server, "gpu-17", "kernel", LOST.encode(), node="..%2f..%2fx").status_code in (404, 422)
