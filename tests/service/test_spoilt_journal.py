"""A service that is killed, and whose disk flips a bit before it comes back: from outside."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import Server

pytestmark = pytest.mark.server
JOBS, PIECES = 12, 40


def piece(job: int, number: int) -> bytes:
    return f"custom note of job {job:02d} piece {number:03d} says nothing known\n".encode() + b"regular output\n" * 20


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Server]:
    """Many jobs are acknowledged, none of them is stored: the database would be asked an hour later."""
    server = Server(tmp_path / "data", "--raw-logs", str(tmp_path / "raw"), DIAGNOSE_SERVE_FLUSH_S="3600")
    with server:
        for number in range(PIECES):
            for job in range(JOBS):
                data = piece(job, number)
                server.push(f"job{job}", data, source="log", offset=number * len(data))
        server.kill()
        yield server


def test_a_flipped_bit_after_a_kill_costs_one_push_and_everybody_is_told(killed: Server) -> None:
    (segment,) = (killed.data / "journal").glob("*.journal")
    data = bytearray(segment.read_bytes())
    at = data.index(b"of job 03 piece 017")
    data[at + 5] ^= 1 << random.Random(3).randrange(8)
    segment.write_bytes(data)
    killed.start()
    size = len(piece(3, 17))
    ready = killed.client.get("/readyz").json()
    assert (ready["ready"], ready["lost_bytes"], ready["damaged_segments"]) == (True, size, 1)
    assert f"diagnose_lost_bytes_total {float(size)}" in killed.client.get("/metrics").text
    assert '"level": "error"' in next(line for line in killed.log.splitlines() if "accepted bytes are lost" in line)
    for job in range(JOBS):
        wanted = [number for number in range(PIECES) if (job, number) != (3, 17)]
        killed.end(f"job{job}", 1)
        report = killed.get(f"/v1/jobs/job{job}/report")
        told = [line["text"] for line in killed.lines(f"job{job}", search="custom note")]
        assert told == [f"custom note of job {job:02d} piece {number:03d} says nothing known" for number in wanted]
        (source,) = killed.get(f"/v1/jobs/job{job}/sources")["sources"]
        assert source["received"] == PIECES * size
        assert source["missing"] == ([[17 * size, 18 * size]] if job == 3 else [])
        assert [problem["source"] for problem in report["problems"]] == (["log"] if job == 3 else [])
    page = killed.client.get("/ui/jobs/job3").text
    assert f"bytes {17 * size:,} to {18 * size:,} are missing" in page
    assert "are missing" not in killed.client.get("/ui/jobs/job4").text
    raw = killed.get("/v1/jobs/job3/raw", source="log", offset=0, limit=1000)
    assert [(gap["offset"], gap["end"]) for gap in raw["gaps"]] == [(17 * size, 18 * size)]
    whole = killed.client.get("/v1/jobs/job3/raw/download", params={"source": "log"}).content
    told = f"\n--- diagnose: bytes {17 * size} to {18 * size} of this source are not kept ---\n".encode()
    assert whole == b"".join(told if number == 17 else piece(3, number) for number in range(PIECES))
