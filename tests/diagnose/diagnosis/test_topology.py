"""Who is who, as launchers tell."""

from __future__ import annotations

import textwrap

import pytest

from diagnose.diagnosis.evidence import Event
from diagnose.diagnosis.topology import Topology, expand, learn, numbers, plain_pci, read
from diagnose.reading.prefixes import body_start
from tests.support.logs import job_of, report_of


def topology(text: str) -> Topology:
    lines = textwrap.dedent(text).splitlines()
    return read(Event(number, 0, number, line, -1, body_start(line.encode())) for number, line in enumerate(lines, 1))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("gpu-17", ["gpu-17"]),
        ("gpu-[01-03,07]", ["gpu-01", "gpu-02", "gpu-03", "gpu-07"]),
        ("gpu-[9-11],login1", ["gpu-9", "gpu-10", "gpu-11", "login1"]),
        ("r[1-2]i5n1", ["r1i5n1", "r2i5n1"]),
        ("n20.cluster", ["n20.cluster"]),
        ("gpu-[7-3]", []),
        ("", []),
    ],
)
def test_node_lists(nodes: str, expected: list[str]) -> None:
    assert expand(nodes) == expected


def test_a_hostile_node_list_is_bounded() -> None:
    assert len(expand("gpu-[1-99999999]")) <= 4097


def test_numbers() -> None:
    assert numbers("3, 5-7") == [3, 5, 6, 7]
    assert numbers("all") == []
    assert numbers("\u00b2, 4") == [4]


def test_the_summary_of_torchrun() -> None:
    found = topology(
        """\
        Root Cause (first observed failure):
        [0]:
          time      : 2026-12-01_23:44:32
          host      : gpu-13
          rank      : 21 (local_rank: 5)
          exitcode  : -9 (pid: 5758)
          error_file: <N/A>
        """
    )
    assert found.host_of == {21: "gpu-13"}
    (end,) = found.ended
    assert (end.rank, end.local_rank, end.host, end.exitcode, end.first) == (21, 5, "gpu-13", -9, True)


@pytest.mark.parametrize("written", ["", " ", "--5", "\u00b2", "unknown", "9" * 4000])
def test_an_exit_code_that_is_no_number_leaves_the_rest_of_the_entry(written: str) -> None:
    found = topology(f"""\
          host      : gpu-13
          rank      : 21 (local_rank: 5)
          exitcode  : {written} (pid: 5758)
        """)
    (end,) = found.ended
    assert (end.rank, end.host, end.exitcode) == (21, "gpu-13", None)


def test_srun_names_tasks_and_node() -> None:
    found = topology("srun: error: gpu-12: tasks 8-9: Exited with exit code 17\nsrun: error: gpu-[01-02]: tasks 0-1: Killed\n")
    assert found.host_of == {8: "gpu-12", 9: "gpu-12"}
    assert [(end.rank, end.host, end.how) for end in found.ended][-1] == (1, None, "Killed")


def test_lightning_names_the_child() -> None:
    found = topology(
        "[rank: 2] Child process with PID 30122 terminated with code 1. Forcefully terminating all other processes\n"
    )
    assert [end.rank for end in found.ended] == [2]


WHO = "{host}:410{gpu}:5203 [{gpu}] NCCL INFO ncclCommInitRankConfig comm 0x55d0 rank {rank} nranks {size} cudaDev {gpu} nvmlDev {gpu} busId {bus} commId 0x1d5 - Init COMPLETE\n"


def test_nccl_tells_rank_host_and_gpu() -> None:
    found = Topology()
    lines = [(9, "gpu-12", 1, "8a000", 16), (1, "gpu-12", 1, "8a000", 2), (0, "gpu-11", 0, "10001b000", 16)]
    learn(found, (WHO.format(rank=r, host=h, gpu=g, bus=b, size=s).encode() for r, h, g, b, s in lines))
    assert found.host_of == {9: "gpu-12", 0: "gpu-11"}
    assert found.gpu_of == {9: "0000:8a:00", 0: "1000:1b:00"}
    assert found.rank_of("gpu-12", "00000000:8A:00.0") == 9
    assert found.rank_of("gpu-11", "0000:8a:00") is None


@pytest.mark.parametrize("address", ["0000:8a:00", "8A:00.0", "00000000:8A:00.0", "PCI:0000:8a:00"])
def test_pci_addresses_are_compared_in_one_form(address: str) -> None:
    assert plain_pci(address) == "0000:8a:00"


def test_lines_that_tell_who_is_who_are_dropped_and_still_known() -> None:
    lines = "".join(
        WHO.format(rank=r, host=f"gpu-{11 + r // 8}", gpu=r % 8, bus=f"{16 + r % 8:x}a000", size=16) for r in range(16)
    )
    xid = "Mar 04 07:09:47 gpu-12 kernel: NVRM: Xid (PCI:0000:13:00): 79, pid=1, GPU has fallen off the bus.\n"
    lines = lines.replace("a000", "000")
    job = job_of(lines + xid)
    assert job.compression.counts.lines_kept == 1
    assert job.compression.dropped_by_kind() == {"init": 16}
    assert len(job.compression.facts) == 16
    assert report_of(lines + xid).diagnosis.suspects.ranks == [11]


def test_a_rank_is_found_on_its_node() -> None:
    lines = "".join(WHO.format(rank=r, host=f"gpu-{11 + r // 8}", gpu=r % 8, bus="1b000", size=16) for r in range(16))
    report = report_of(lines + "[rank9]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    assert (report.action.kind, report.action.nodes) == ("isolate_and_restart", ["gpu-12"])


def test_deepspeed_tells_ranks_and_hosts() -> None:
    line = "[2026-01-02 03:04:05,123] [INFO] [launch.py:163:main] global_rank_mapping=defaultdict(<class 'list'>, {'gpu-11': [0, 1, 2, 3], 'gpu-12': [4, 5, 6, 7]})\n"
    job = job_of(line)
    assert job.compression.counts.lines_kept == 0
    report = report_of(line + "[rank6]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    assert (report.action.kind, report.action.nodes) == ("isolate_and_restart", ["gpu-12"])
