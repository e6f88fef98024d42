"""The enumeration itself: the images of a few small changes, listed by hand."""

from __future__ import annotations

from random import Random

from kraftbase.files.files import SECTOR_BYTES, read_whole
from kraftbase.files.memory import MemoryFileSystem
from tests.raft.storage.images import a_random_image, all_images


def _with_file(data: bytes) -> MemoryFileSystem:
    files = MemoryFileSystem()
    files.make_directories("d")
    file = files.open("d/f", create=True)
    file.write_at(0, data)
    file.fsync()
    files.fsync_directory("d")
    return files


def _contents(files: MemoryFileSystem) -> list[dict[str, bytes]]:
    images = [image() for image in all_images(files)]
    return [{name: read_whole(image, f"d/{name}") for name in image.list_directory("d")} for image in images]


def test_what_is_synced_has_one_image() -> None:
    assert _contents(_with_file(b"abc")) == [{"f": b"abc"}]


def test_each_sector_of_a_write_is_kept_lost_or_zeros() -> None:
    files = _with_file(b"")
    files.open("d/f").write_at(SECTOR_BYTES - 1, b"xy")
    zeros = bytes(SECTOR_BYTES - 1)
    expected = {b"", zeros + b"x", zeros + b"xy", zeros + b"\0y", zeros + b"\0", zeros + b"x\0", zeros + b"\0\0"}
    assert {found["f"] for found in _contents(files)} == expected


def test_writes_to_one_sector_are_independent() -> None:
    files = _with_file(b"ab")
    file = files.open("d/f")
    file.write_at(0, b"A")
    file.write_at(1, b"B")
    assert len(_contents(files)) == 4
    assert {"f": b"aB"} in _contents(files)


def test_a_resize_is_kept_or_lost() -> None:
    files = _with_file(b"abc")
    files.open("d/f").truncate(1)
    assert _contents(files) == [{"f": b"a"}, {"f": b"abc"}]


def test_of_a_directorys_changes_the_first_few_are_kept() -> None:
    files = _with_file(b"old")
    file = files.open("d/g", create=True)
    file.write_at(0, b"new")
    file.fsync()
    files.rename("d/g", "d/f")
    assert _contents(files) == [{"f": b"old"}, {"f": b"old", "g": b"new"}, {"f": b"new"}]


def test_an_image_has_a_life_of_its_own() -> None:
    files = _with_file(b"abc")
    (image,) = all_images(files)
    image().open("d/f").write_at(0, b"X")
    assert read_whole(files, "d/f") == b"abc"


def test_random_images_are_among_all() -> None:
    files = _with_file(b"abc")
    files.open("d/f").write_at(0, b"xyz")
    files.open("d/g", create=True).write_at(0, b"g")
    everything = _contents(files)
    for seed in range(50):
        image = a_random_image(files, Random(seed))
        assert {name: read_whole(image, f"d/{name}") for name in image.list_directory("d")} in everything
