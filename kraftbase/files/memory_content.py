"""Files and directories in memory: what is durable, and the changes made since the last sync, in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes are written at a position."""

    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    """A file gets a size."""

    size: int


@dataclass(slots=True, eq=False)
class Content:
    """The content of a file: `durable` plus `changes` gives `current`."""

    current: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    changes: list[Write | Resize] = field(default_factory=list)
    is_read_only: bool = False
    """Whether it may only be opened for reading. A crash does not change that."""
    durable_changed_from: int = 0
    """The durable bytes below this have not changed since the last `take_changed_from`."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Content:
        copied: Content | None = memo.get(id(self))
        if copied is None:
            copied = memo[id(self)] = Content(
                self.current[:], self.durable[:], self.changes[:], self.is_read_only, self.durable_changed_from
            )
        return copied

    def change(self, change: Write | Resize) -> None:
        """Make a change that is not durable until the next sync."""
        self.changes.append(change)
        apply(self.current, change)

    def sync(self) -> None:
        """Make all changes durable."""
        for change in self.changes:
            self._note_change(change)
            apply(self.durable, change)
        self.changes.clear()

    def _note_change(self, change: Write | Resize) -> None:
        start = change.size if isinstance(change, Resize) else change.position
        self.durable_changed_from = min(self.durable_changed_from, start, len(self.durable))

    def crash(self, kept_bytes: int, random: Random | None, sector_bytes: int) -> int:
        """Lose changes: keep `kept_bytes` written bytes, or random sectors. Returns the unused `kept_bytes`."""
        survivor = self.durable
        for change in self.changes:
            self._note_change(change)
            if random is not None:
                _apply_some_sectors(survivor, change, random, sector_bytes)
            elif isinstance(change, Resize):
                if kept_bytes > 0:
                    apply(survivor, change)
            else:
                kept = change.data[:kept_bytes]
                if kept:
                    apply(survivor, Write(change.position, kept))
                kept_bytes -= len(kept)
        self.current = bytearray(survivor)
        self.changes.clear()
        return kept_bytes


def apply(content: bytearray, change: Write | Resize) -> None:
    """Change the bytes of a file. What a write or a resize adds is zeros."""
    if isinstance(change, Resize):
        del content[change.size :]
        content.extend(bytes(change.size - len(content)))
        return
    end = change.position + len(change.data)
    if end > len(content):
        content.extend(bytes(end - len(content)))
    content[change.position : end] = change.data


def _apply_some_sectors(content: bytearray, change: Write | Resize, random: Random, sector_bytes: int) -> None:
    if isinstance(change, Resize):
        if random.random() < 0.5:
            apply(content, change)
        return
    position, end = change.position, change.position + len(change.data)
    while position < end:
        sector_end = min(end, (position // sector_bytes + 1) * sector_bytes)
        if random.random() < 0.5:
            apply(content, Write(position, change.data[position - change.position : sector_end - change.position]))
        position = sector_end


@dataclass(slots=True, eq=False)
class Directory:
    """Names to files: `durable` plus `changes` gives `current`. A change sets a name (None: removes it)."""

    current: dict[str, Content] = field(default_factory=dict)
    durable: dict[str, Content] = field(default_factory=dict)
    changes: list[dict[str, Content | None]] = field(default_factory=list)

    def __deepcopy__(self, memo: dict[int, Any]) -> Directory:
        """Copies of names are the names. A file with several names, or with an old and a new one, stays one file."""
        return Directory(
            {name: content.__deepcopy__(memo) for name, content in self.current.items()},
            {name: content.__deepcopy__(memo) for name, content in self.durable.items()},
            [
                {name: None if content is None else content.__deepcopy__(memo) for name, content in names.items()}
                for names in self.changes
            ],
        )

    def change(self, names: dict[str, Content | None]) -> None:
        """Set or remove names; the change is not durable until the next sync."""
        self.changes.append(names)
        self._apply(names)

    def _apply(self, names: dict[str, Content | None]) -> None:
        for name, content in names.items():
            if content is None:
                del self.current[name]
            else:
                self.current[name] = content

    def sync(self) -> None:
        """Make all changes durable."""
        self.durable = dict(self.current)
        self.changes.clear()

    def crash(self, random: Random | None) -> None:
        """Lose the changes, or keep a random number of the first: a journal keeps their order."""
        kept = self.changes[: random.randint(0, len(self.changes))] if random is not None else []
        self.current = dict(self.durable)
        for names in kept:
            self._apply(names)
        self.sync()
