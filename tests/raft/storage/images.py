"""Every state that a crash may leave of a MemoryFileSystem, for scenarios that are short enough to try them all.

Each unsynced write to a file is kept or lost in pieces, each within a sector, and so is each change of the size, all
independently. In place of a lost piece are the bytes from before, or zeros if the file has grown. Of the unsynced
changes to a directory's names a first part is kept. That is all that `kraftbase.files.files` leaves open.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from random import Random
from typing import TypeVar

from kraftbase.files.files import SECTOR_BYTES
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.files.memory_content import Content, Directory, Resize, Write, apply
from tests.effort import all_cases
from tests.raft.storage.crash_points import tell_until

Told = TypeVar("Told")

IMAGES_MAX = 4096
"""A case with more images than this is sampled."""

PART = 9
"""`make test` verifies one image in so many: not an even number, as most pieces are either kept or lost."""

FEW = 3
"""Of so many it verifies all."""

Image = Callable[[], MemoryFileSystem]
"""Makes it."""


@dataclass
class Coverage:
    """How many images there are. `make test` verifies a part of them."""

    operations: int = 0
    images: int = 0
    sampled: int = 0
    """How many points of the scenario had too many images to try all."""


def crash_everywhere(
    prepare: Callable[[MemoryFileSystem], Told],
    story: Callable[[MemoryFileSystem, Told], None],
    verify: Callable[[MemoryFileSystem, Told], None],
    sector_bytes: int = SECTOR_BYTES,
) -> Coverage:
    """Stop `story` before each operation and after the last, and `verify` the images that a crash may leave there.

    `prepare` makes a new object in which the scenario records the promises that it got; `verify` may change neither it
    nor the files.
    """
    coverage = Coverage()
    while True:
        files = MemoryFileSystem()
        told = prepare(files)
        was_stopped = tell_until(files, told, story, coverage.operations)
        images: list[Image] = list(itertools.islice(all_images(files, sector_bytes), IMAGES_MAX + 1))
        if len(images) > IMAGES_MAX:
            coverage.sampled += 1
            images = [partial(a_random_image, files, Random(seed), sector_bytes) for seed in range(IMAGES_MAX)]
        coverage.images += len(images)
        for image in images if all_cases() or len(images) <= FEW else images[coverage.operations % PART :: PART]:
            verify(image(), told)
        if not was_stopped:
            return coverage
        coverage.operations += 1


def all_images(files: MemoryFileSystem, sector_bytes: int = SECTOR_BYTES) -> Iterator[Image]:
    """Every file system that a crash may leave now, each once as far as files' contents and names go."""
    contents_of = cache(lambda content: sorted(_contents(content, sector_bytes)))
    prefixes = [
        [_names_after(directory, kept) for kept in range(len(directory.changes) + 1)]
        for directory in files._directories.values()
    ]
    for names in itertools.product(*prefixes):
        inodes = list({id(content): content for found in names for content in found.values()}.values())
        for data in itertools.product(*(contents_of(content) for content in inodes)):
            yield partial(_image, files, names, {id(inode): of for inode, of in zip(inodes, data, strict=True)})


def a_random_image(files: MemoryFileSystem, random: Random, sector_bytes: int = SECTOR_BYTES) -> MemoryFileSystem:
    """One image."""
    names = [
        _names_after(directory, random.randint(0, len(directory.changes))) for directory in files._directories.values()
    ]
    data = {id(content): _a_content(content, random, sector_bytes) for found in names for content in found.values()}
    return _image(files, names, data)


def _names_after(directory: Directory, kept: int) -> dict[str, Content]:
    found = dict(directory.durable)
    for change in directory.changes[:kept]:
        for name, content in change.items():
            if content is None:
                del found[name]
            else:
                found[name] = content
    return found


def _contents(content: Content, sector_bytes: int) -> set[bytes]:
    """All contents that may be left of a file, up to a number that can be tried."""
    found = {bytes(content.durable)}
    for piece in _pieces(content, sector_bytes):
        found |= {outcome for before in found for outcome in _outcomes(before, piece)}
        if len(found) > 4 * IMAGES_MAX:
            break
    return found


def _a_content(content: Content, random: Random, sector_bytes: int) -> bytes:
    data = bytes(content.durable)
    for piece in _pieces(content, sector_bytes):
        data = random.choice([data, *_outcomes(data, piece)])
    return data


def _outcomes(before: bytes, piece: Write | Resize) -> Iterator[bytes]:
    """The effects that a piece may have on a content, apart from none."""
    changes = [piece]
    if isinstance(piece, Write) and piece.position + len(piece.data) > len(before):
        changes.append(Resize(piece.position + len(piece.data)))
    for change in changes:
        after = bytearray(before)
        apply(after, change)
        yield bytes(after)


def _pieces(content: Content, sector_bytes: int) -> Iterator[Write | Resize]:
    for change in content.changes:
        if isinstance(change, Resize):
            yield change
            continue
        position, end = change.position, change.position + len(change.data)
        while position < end:
            sector_end = min(end, (position // sector_bytes + 1) * sector_bytes)
            yield Write(position, change.data[position - change.position : sector_end - change.position])
            position = sector_end


def _image(
    files: MemoryFileSystem, names: tuple[dict[str, Content], ...] | list[dict[str, Content]], data: dict[int, bytes]
) -> MemoryFileSystem:
    image = MemoryFileSystem()
    inodes = {key: Content(current=bytearray(content), durable=bytearray(content)) for key, content in data.items()}
    for path, found in zip(files._directories, names, strict=True):
        renewed = {name: inodes[id(content)] for name, content in found.items()}
        image._directories[path] = Directory(current=renewed, durable=dict(renewed))
    return image
