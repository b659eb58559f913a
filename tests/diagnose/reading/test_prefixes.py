"""Who printed a line, and where its message begins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.matching.shapes import shape
from diagnose.reading.lines import clean
from diagnose.reading.prefixes import _RANK_IN_BODY, Origin, body_start, moment, origin, origin_of_path, speaker
from tests.support.strategies import bodies, siblings

PREFIXED = [
    ("torch", b"[rank3]: Traceback", b"Traceback", Origin(rank=3)),
    ("torchrun tee", b"[default13]:step 5", b"step 5", Origin(rank=13)),
    ("torchrun keeps indentation", b"[rank3]:   File", b"  File", Origin(rank=3)),
    ("srun -l", b"  12: loss", b"loss", Origin(rank=12)),
    ("mpirun", b"[1,7]<stderr>:oops", b"oops", Origin(rank=7)),
    ("pdsh host", b"gpu-017: ok", b"ok", Origin(node="gpu-017")),
    ("host with three digits", b"r7i4n4: ok", b"ok", Origin(node="r7i4n4")),
    ("host with a stem", b"node3: ok", b"ok", Origin(node="node3")),
    ("host with a domain", b"n20.cluster: ok", b"ok", Origin(node="n20.cluster")),
    ("a setting is no host", b"fp16: True", b"fp16: True", Origin()),
    ("an exception is no host", b"oss2.exceptions.NoSuchKey: gone", b"oss2.exceptions.NoSuchKey: gone", Origin()),
    ("nor is an error of a library", b"cv2.error: OpenCV", b"cv2.error: OpenCV", Origin()),
    ("a host in a domain", b"n1.HPC: hello", b"hello", Origin(node="n1.HPC")),
    ("a setting with underscore is no host", b"adam_beta1: 0.9", b"adam_beta1: 0.9", Origin()),
    ("a word is no host", b"Error: x", b"Error: x", Origin()),
    ("ray", b"(Worker pid=5, ip=10.0.0.7) hi", b"hi", Origin(node="10.0.0.7")),
    ("raylet", b"(raylet) hi", b"hi", Origin()),
    ("compose", b"worker-1  | hi", b"hi", Origin(node="worker-1")),
    ("kubernetes", b"2026-01-02T03:04:05.678Z stdout F hi", b"hi", Origin(time="2026-01-02T03:04:05.678Z")),
    ("kubectl", b"[pod/train-0/main] hi", b"hi", Origin(node="train-0/main")),
    ("logging", b"2026-01-02 03:04:05,678 hi", b"hi", Origin(time="2026-01-02 03:04:05,678")),
    ("logging in brackets", b"[2026-01-02 03:04:05][INFO] hi", b"[INFO] hi", Origin(time="2026-01-02 03:04:05")),
    ("several", b"gpu-017: [rank9]: 2026/01/02 03:04:05 hi", b"hi",
     Origin(rank=9, node="gpu-017", time="2026/01/02 03:04:05")),
    ("not five", b"1: 2: 3: 4: 5: x", b"5: x", Origin(rank=4)),
    ("a number is no rank", b"12 apples", b"12 apples", Origin()),
    ("syslog", b"Jan  2 03:04:05 gpu07 kernel: [12.3] NVRM: Xid", b"Jan  2 03:04:05 gpu07 kernel: [12.3] NVRM: Xid",
     Origin(node="gpu07", time="Jan  2 03:04:05")),
    ("NCCL", b"gpu07:123:456 [5] NCCL INFO x", b"gpu07:123:456 [5] NCCL INFO x", Origin(node="gpu07", gpu="5")),
    ("Megatron", b"[Rank 3] memory (MB)", b"[Rank 3] memory (MB)", Origin(rank=3)),
    ("glog", b"[E0102 03:04:05.678901 1 x.cpp:3] [Rank 5] hi", b"[E0102 03:04:05.678901 1 x.cpp:3] [Rank 5] hi",
     Origin(rank=5, time="01-02 03:04:05.678901")),
]  # fmt: skip


@pytest.mark.parametrize(("line", "body", "who"), [row[1:] for row in PREFIXED], ids=[row[0] for row in PREFIXED])
def test_prefixes(line: bytes, body: bytes, who: Origin) -> None:
    assert line[body_start(line) :] == body
    assert origin(line) == who
    assert speaker(line) == (who.rank, who.node)


@given(
    st.lists(
        st.sampled_from(["[", "]", "global_rank", "rank", "RankID", "RANK", "[default", "[INFO", "=", ":", " ", "7", "x" * 20])
    )
)
def test_a_rank_in_the_body_is_found_wherever_it_stands(words: list[str]) -> None:
    body = b"_ " + "".join(words).encode()  # behind no prefix
    plain = _RANK_IN_BODY.search(body[:400])
    expected = int(plain["rank"] or plain["named"] or plain["logger"]) if plain is not None else None
    assert speaker(body)[0] == origin(body).rank == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("rank0.log", Origin(rank=0)),
        ("logs/node-3/rank_12.out", Origin(rank=12, node="node-3")),
        ("job.0.out", Origin(rank=0)),
        ("job.17.err.gz", Origin(rank=17)),
        ("worker-5.log", Origin(node="worker-5")),
        ("logs/host12/stderr.log", Origin(node="host12")),
        ("global_rank-31.txt", Origin(rank=31)),
        ("slurm-123456.out", Origin()),
        ("train.log", Origin()),
        ("franks2.log", Origin()),
    ],
)
def test_a_file_name_tells_rank_and_node(path: str, expected: Origin) -> None:
    assert origin_of_path(path) == expected


def test_moment() -> None:
    found = moment("2026-01-02 03:04:05,678")
    assert found is not None
    assert found.isoformat() == "2026-01-02T03:04:05.678000+00:00"
    assert moment("Jan  2 03:04:05") is None


@given(bodies.flatmap(lambda line: st.tuples(st.just(line), siblings(line))))
def test_lines_that_differ_in_numbers_have_their_bodies_at_the_same_place(pair: tuple[bytes, bytes]) -> None:
    line, sibling = (clean(one) for one in pair)
    if shape(line) == shape(sibling):
        assert shape(line[body_start(line) :]) == shape(sibling[body_start(sibling) :])
