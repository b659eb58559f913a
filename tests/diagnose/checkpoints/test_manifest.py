from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from diagnose.checkpoints import manifest
from diagnose.checkpoints.hashes import BLOCK, FileHash, Hasher, hash_file


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1], ids=str)
def test_a_file_has_one_checksum_per_block(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    path = tmp_path / "file"
    path.write_bytes(data)

    expected = FileHash(size, tuple(zlib.crc32(data[at : at + BLOCK]) for at in range(0, size, BLOCK)))
    assert hash_file(path) == expected


def test_the_pieces_in_which_it_is_written_do_not_matter() -> None:
    data = os.urandom(BLOCK + 5000)
    once, often = Hasher(), Hasher()
    once.update(data)
    for at in range(0, len(data), 999_983):
        often.update(data[at : at + 999_983])
    assert once.done() == often.done()


def test_what_is_committed_is_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "step"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "a").write_bytes(b"abc")
    made = manifest.seal(folder, 7, {"loss": 2.5})

    assert manifest.read(folder) == made
    assert made.files == {"below/a": FileHash(3, (zlib.crc32(b"abc"),))}
    assert (made.step, made.size, made.facts) == (7, 3, {"loss": 2.5})


def test_without_a_manifest_there_is_none(tmp_path: Path) -> None:
    assert manifest.read(tmp_path) is None
    assert manifest.read(tmp_path / "gone") is None


def test_the_manifest_comes_after_the_files_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut cannot be made here, so the calls are watched: every file is synced before the manifest gets its name."""
    (tmp_path / "a").write_bytes(b"abc")
    happened: list[str] = []
    sync, rename = os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda handle: (happened.append(os.readlink(f"/proc/self/fd/{handle}")), sync(handle))[1])
    monkeypatch.setattr(Path, "rename", lambda self, to: (happened.append(f"-> {to}"), rename(self, to))[1])
    manifest.seal(tmp_path, 1)

    named = happened.index(f"-> {tmp_path / manifest.NAME}")
    assert {str(tmp_path / "a"), str(tmp_path), str(tmp_path / f"{manifest.NAME}.part")} <= set(happened[:named])
    assert str(tmp_path) in happened[named:]


def rewritten(folder: Path, **changed: object) -> None:
    """A manifest that says something else, with a checksum of its own that agrees."""
    body = json.loads((folder / manifest.NAME).read_text())
    del body["sha256"]
    body.update(changed)
    (folder / manifest.NAME).write_text(json.dumps({**body, "sha256": manifest._digest(body)}))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"schema": "other/1"}, "its schema is not"),
        ({"block": 4096}, "its blocks do not have"),
        ({"step": -1}, "is not a whole number"),
        ({"step": 1.5}, "is not a whole number"),
        ({"files": {"../../etc/passwd": [1, 1]}}, "is not a file of the checkpoint"),
        ({"files": {"/etc/passwd": [1, 1]}}, "is not a file of the checkpoint"),
        ({"files": {"a\0b": [1, 1]}}, "is not a file of the checkpoint"),
        ({"files": {"a": [3]}}, "does not fit its size"),
        ({"files": {"a": []}}, "the manifest is damaged"),
        ({"files": [1]}, "the manifest is damaged"),
    ],
    ids=str,
)
def test_a_manifest_that_cannot_be_true_is_refused(tmp_path: Path, changed: dict[str, object], said: str) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    manifest.seal(tmp_path, 1)
    rewritten(tmp_path, **changed)
    with pytest.raises(manifest.ManifestError, match=said):
        manifest.read(tmp_path)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{", b"[" * 100_000, b'{"schema":' + b"9" * 5000 + b"}", b"\xff"], ids=lambda t: t[:12]
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / manifest.NAME).write_bytes(text)
    with pytest.raises(manifest.ManifestError, match="the manifest is damaged"):
        manifest.read(tmp_path)


def test_each_bit_of_a_manifest_counts(tmp_path: Path) -> None:
    """Or what is not noticed says the same."""
    (tmp_path / "a").write_bytes(b"abc")
    made = manifest.seal(tmp_path, 1, {"loss": 1.25})
    text = (tmp_path / manifest.NAME).read_bytes()
    for at in range(len(text)):
        changed = bytearray(text)
        changed[at] ^= 1 << at % 8
        (tmp_path / manifest.NAME).write_bytes(changed)
        try:
            read = manifest.read(tmp_path)
        except manifest.ManifestError:
            continue
        assert read == made, f"byte {at}"


def test_a_thread_gives_way_to_the_training_whatever_its_own_priority_is() -> None:
    """A training that was started with nice 10 had a writer of the same priority."""
    if sys.platform != "linux":
        return
    script = (
        "import os, threading\nfrom diagnose.checkpoints.hashes import give_way\n"
        "def work():\n give_way()\n give_way()\n print(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))\n"
        "one = threading.Thread(target=work)\none.start()\none.join()\nprint(os.getpriority(os.PRIO_PROCESS, 0))\n"
        "work()\ngive_way(apart=True)\nprint(os.getpriority(os.PRIO_PROCESS, 0))\n"  # a process that only writes
    )
    own = os.getpriority(os.PRIO_PROCESS, 0)
    done = subprocess.run(["nice", "-n", "7", sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    training = min(own + 7, 19)
    writer = min(training + 10, 19)
    assert done.stdout.split() == [str(writer), str(training), str(writer), "19"], done.stderr
