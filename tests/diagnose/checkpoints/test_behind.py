"""The second place: a folder, and an object store that speaks S3 over HTTP (moto's server: it keeps objects in memory)."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from diagnose.checkpoints import behind, manifest, marks
from diagnose.checkpoints.behind import Behind, PlaceError, fetch, reading, remove, upload, verdict_of
from diagnose.checkpoints.found import find
from diagnose.checkpoints.good import Alarm
from diagnose.checkpoints.places import FolderPlace, ObjectPlace, Place, place_of
from diagnose.checkpoints.verify import check
from tests.diagnose.checkpoints.samples import flip, sealed


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, Any]]:
    """An S3 server with a bucket: the options of obstore."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0, verbose=False)
    import boto3

    server.start()
    address, port = server.get_host_and_port()
    options = {"endpoint": f"http://{address}:{port}", "access_key_id": "x", "secret_access_key": "x", "region": "us-east-1"}
    client = boto3.client(
        "s3", endpoint_url=options["endpoint"], aws_access_key_id="x", aws_secret_access_key="x", region_name="us-east-1"
    )
    client.create_bucket(Bucket="ckpt")
    yield {**options, "client_options": {"allow_http": True}}
    server.stop()


@pytest.fixture(params=["folder", pytest.param("store", marks=pytest.mark.server)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return place_of(tmp_path / "second")
    pytest.importorskip("obstore")
    options = request.getfixturevalue("store")
    return place_of(f"s3://ckpt/{tmp_path.name}", options)


def behind_it(path: Path, place: Place, keep: int | None = None) -> Behind:
    return Behind(path, place, keep, thin=())


def test_what_was_uploaded_comes_back_whole(place: Place, tmp_path: Path) -> None:
    path = sealed(tmp_path / "first", 100, size=9_000_000)  # larger than one part of an upload
    marks.write(path, True, "the training went on")
    upload(place, path)
    assert place.names() == [path.name]
    fetch(place, path.name, tmp_path / "third" / path.name)
    (found,) = find(tmp_path / "third")
    assert check(found).state == "whole"
    assert marks.read(found.path) == marks.read(path) == verdict_of(place, path.name)
    assert sorted(os.listdir(tmp_path / "third")) == [path.name]


def test_what_changed_before_it_was_uploaded_does_not_count_there(place: Place, tmp_path: Path) -> None:
    path = sealed(tmp_path / "first", 100)
    flip(path / "__1_0.distcp", 1000)
    with pytest.raises((PlaceError, OSError)):
        upload(place, path)
    assert place.names() == []


def test_what_changed_at_the_second_place_is_not_taken(place: Place, tmp_path: Path) -> None:
    path = sealed(tmp_path / "first", 100)
    upload(place, path)
    data = bytearray(b"".join(place.read(path.name, "__0_0.distcp")))
    data[1000] ^= 1
    place.write(path.name, "__0_0.distcp", [bytes(data)])
    with pytest.raises(PlaceError, match="not what was written"):
        fetch(place, path.name, tmp_path / "third" / path.name)
    assert os.listdir(tmp_path / "third") == []
    place.delete(path.name, "__0_0.distcp")
    with pytest.raises(PlaceError, match="cannot be fetched"):
        fetch(place, path.name, tmp_path / "third" / path.name)


def test_an_upload_that_was_cut_off_does_not_count(place: Place, tmp_path: Path) -> None:
    path = sealed(tmp_path / "first", 100)

    def cut() -> Iterator[bytes]:
        yield b"x" * 1000
        raise OSError("the network is gone")

    with pytest.raises(OSError):
        place.write(path.name, "__0_0.distcp", cut())
    assert place.names() == []
    assert "__0_0.distcp" not in (place.files(path.name) if (tmp_path / "second" / path.name).is_dir() else [])
    upload(place, path)
    assert place.names() == [path.name]


def test_who_reads_is_not_disturbed(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sealed(tmp_path / "first", 100)
    upload(place, path)
    with reading(place, path.name):
        assert not remove(place, path.name)
    killed = f"{manifest.OURS}reading-1"
    place.write(path.name, killed, [json.dumps({"at": time.time() - 7 * 3600}).encode()])
    assert remove(place, path.name)
    assert (place.names(), place.files(path.name)) == ([], [])


def test_verdicts_are_passed_on_and_old_ones_go(place: Place, tmp_path: Path) -> None:
    first = tmp_path / "first"
    uploads = behind_it(first, place, keep=1)
    for step in (100, 200, 300):
        path = sealed(first, step)
        if step > 100:
            marks.write(first / f"step_{step - 100:09}", True, "the training went on")
        uploads.saved(path, ())
        while uploads.newest != path.name:
            time.sleep(0.01)
    place.write("mine", manifest.NAME, [b"{}"])
    uploads.close(60)
    assert place.names() == ["mine", "step_000000200", "step_000000300"]  # what is not ours, the newest good one, the newest
    verdict = verdict_of(place, "step_000000200")
    assert verdict is not None
    assert verdict.good


def test_what_is_before_an_open_alarm_stays(tmp_path: Path) -> None:
    first, place = tmp_path / "first", FolderPlace(tmp_path / "second")
    uploads = behind_it(first, place, keep=1)
    for step in (100, 200, 300, 400):
        uploads.saved(sealed(first, step), [Alarm(150, "the loss rose")])
        while uploads.newest != f"step_{step:09}":
            time.sleep(0.01)
    uploads.close(60)
    assert place.names() == ["step_000000100", "step_000000400"]


class Slow(FolderPlace):
    """A place where an upload waits until it may go on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.begun, self.goes = threading.Event(), threading.Event()

    def write(self, name: str, file: str, pieces: Any) -> None:
        self.begun.set()
        assert self.goes.wait(60)
        super().write(name, file, pieces)


def test_what_is_being_uploaded_is_not_deleted_and_only_the_newest_that_waits_follows(tmp_path: Path) -> None:
    from diagnose.checkpoints.keeper import Keeper

    first, place = tmp_path / "first", Slow(tmp_path / "second")
    uploads, keeper = behind_it(first, place), Keeper(first, keep=1, thin=())
    uploads.saved(sealed(first, 100), ())
    assert place.begun.wait(60)
    for step in (200, 300, 400):
        uploads.saved(sealed(first, step), ())
        keeper.saved()
    assert (first / "step_000000100" / manifest.NAME).exists()
    place.goes.set()
    uploads.close(60)
    assert place.names() == ["step_000000100", "step_000000400"]
    keeper.saved()
    assert not (first / "step_000000100").exists()


class Broken(FolderPlace):
    broken = True

    def write(self, name: str, file: str, pieces: Any) -> None:
        if self.broken:
            raise OSError("the network is gone")
        super().write(name, file, pieces)


def test_a_failed_upload_is_tried_again_and_told_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behind, "_PAUSE_S", (0.01, 0.01))
    first, place = tmp_path / "first", Broken(tmp_path / "second")
    uploads = behind_it(first, place)
    uploads.saved(sealed(first, 100), ())
    while uploads.problem is None:
        time.sleep(0.01)
    with pytest.raises(PlaceError, match="the network is gone"):
        uploads.close(60)
    uploads = behind_it(first, place)
    uploads.saved(first / "step_000000100", ())
    while uploads.problem is None:
        time.sleep(0.01)
    place.broken = False
    while uploads.newest is None:
        time.sleep(0.01)
    uploads.close(60)
    assert place.names() == ["step_000000100"]


def test_an_address_is_an_object_store_and_a_path_is_a_folder(tmp_path: Path) -> None:
    assert isinstance(place_of(tmp_path), FolderPlace)
    pytest.importorskip("obstore")
    assert isinstance(place_of(f"file://{tmp_path}"), ObjectPlace)
