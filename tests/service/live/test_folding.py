"""The service folds what repeats, and goes on folding after it was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.compression.folds import available
from tests.support.servers import Server

pytestmark = [pytest.mark.server, pytest.mark.skipif(not available(), reason="folds need the native core")]


def test_it_folds_and_goes_on_after_a_kill(tmp_path: Path) -> None:
    lines = [b"walker %d took 3.%d ms\n" % (n, n * 7 % 10) for n in range(200)]
    first, rest = b"".join(lines[:100]), b"".join(lines[100:])
    with Server(tmp_path / "data", DIAGNOSE_SERVE_FOLD_AFTER="2") as server:
        server.push("walk", first, source="log", offset=0)
        server.kill()
        server.start()
        server.push("walk", rest, source="log", offset=len(first))
        figures = server.get("/v1/jobs/walk/report")["compression"]
        assert (figures["lines_in"], figures["lines_kept"], figures["dropped_by_kind"]) == (200, 2, {"folded": 198})
        assert [line["line"] for line in server.get("/v1/jobs/walk/lines")["lines"]] == [1, 2]
