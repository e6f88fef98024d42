"""Draws which file is damaged, and how, from the seed and the damage's number alone; and makes the damage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from kraftlog.chaos.brokers.ledger import At
from kraftlog.kafka.record_batch import HEADER_BYTES, read_batches
from kraftlog.storage.formats.names import LOG_SUFFIX, partition_in_name

BIT: Final = "bit"
CUT: Final = "cut"
DELETION: Final = "deletion"
SWAP: Final = "swap"
OLDER: Final = "older copy"
KINDS: Final = (BIT, CUT, DELETION, SWAP, OLDER)

CLOSED_LOG: Final = "closed .log"
LAST_LOG: Final = "last .log"
FILE_KINDS: Final = (
    CLOSED_LOG, LAST_LOG, ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint",
    "partition.metadata", "meta.properties", "broker-epoch", "kraftlog-inventory", "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint", "replication-offset-checkpoint", ".kafka_cleanshutdown",
)  # fmt: skip
"""The kinds of files in a broker's log directory. The command refuses any other kind before the cluster exists."""
CRC_AT: Final = 17
"""The CRC of a batch covers the bytes after it, but not base offset, length, leader epoch and magic."""

Files = Mapping[str, bytes]
"""The content of each file of a log directory, by its path in it."""
Candidates = Mapping[str, Mapping[str, Sequence[str]]]


class Setting(NamedTuple):
    """How the brokers were stopped before the damage."""

    is_killed: bool
    """Whether by SIGKILL; otherwise by SIGTERM."""
    is_last: bool
    """Whether the damaged broker stopped last, so that it has records that no other broker has; otherwise first."""

    def __str__(self) -> str:
        return f"{'killed' if self.is_killed else 'clean'}, {'last' if self.is_last else 'first'} to leave"


SETTINGS: Final = tuple(Setting(killed, last) for killed in (False, True) for last in (False, True))


@dataclass(frozen=True)
class Image:
    """The files that may be damaged in one setting."""

    files: Files
    """The log directory of the damaged broker."""
    older: Sequence[Files]
    """The same directory at earlier times."""
    others: Files
    """The log directory of another broker."""

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The kind of each file."""
        return file_kinds(self.files)

    @cached_property
    def candidates(self) -> Candidates:
        """The files that can be damaged, by kind of damage and kind of file."""
        return _candidates(self)

    def same_kind(self, file: str) -> list[str]:
        """Return all files of a file's kind, including the file."""
        return [one for one, kind in self.kinds.items() if kind == self.kinds[file]]


@dataclass(frozen=True, slots=True)
class Damage:
    """One damage of one file."""

    number: int
    setting: Setting
    kind: str
    file: str
    """Its path in the log directory."""
    file_kind: str
    content: bytes | None
    """The content of the damaged file; None if it is deleted."""
    detail: str
    """Which byte and bit changed, how many bytes are left, or where the content is from."""
    is_hidden: bool = False
    """Whether the damage is within a batch. With Kafka's format a start detects it only if it reads all batches."""

    @property
    def at(self) -> At | None:
        """The partition whose file it is; None if it is a file of the log directory."""
        return partition_of(self.file)

    @property
    def replication_factor(self) -> int | None:
        """The replication factor of the partition."""
        at = self.at
        return None if at is None else 3 if at.topic.startswith("three") else 1

    def __str__(self) -> str:
        factor = "" if self.replication_factor is None else f", replication factor {self.replication_factor}"
        return f"{self.number}: {self.kind} of {self.file} ({self.detail}); {self.setting}{factor}"


def undamaged(setting: Setting) -> Damage:
    """Return a damage that changes nothing, for the control."""
    return Damage(0, setting, "nothing", "", "", None, "nothing is damaged")


def partition_of(file: str) -> At | None:
    """Return the partition whose directory a file is in."""
    directory, slash, _ = file.partition("/")
    found = partition_in_name(directory) if slash else None
    return None if found is None else At(found.topic, found.partition_id)


def file_kinds(files: Iterable[str]) -> dict[str, str]:
    """Return the kind of each file. A segment's log is the last one of its partition, or a closed one."""
    last = {file.partition("/")[0]: file for file in sorted(files) if file.endswith(LOG_SUFFIX)}
    return {file: _file_kind(file, last.get(file.partition("/")[0])) for file in sorted(files)}


def _file_kind(file: str, last_log: str | None) -> str:
    path = Path(file)
    if not path.stem.isdigit():
        return path.name
    if path.suffix != LOG_SUFFIX:
        return path.suffix
    return LAST_LOG if file == last_log else CLOSED_LOG


def draw(seed: int, number: int, images: Mapping[Setting, Image], only: Collection[str] = ()) -> Damage:
    """Return the damage with this number. `only` names kinds of damage or of files, or is empty.

    Raises ValueError if no damage of these kinds is possible.
    """
    unknown = set(only) - {*KINDS, *(of for image in images.values() for of in image.kinds.values())}
    if unknown:
        raise ValueError(f"no file and no damage is of the kind {', '.join(sorted(unknown))}; see --help")
    possible = {setting: found for setting, image in images.items() if (found := _among(image.candidates, only))}
    if not possible:
        raise ValueError(f"no file has a damage of {', '.join(only)}")
    random = Random(f"{seed} {number}")
    setting = random.choice(list(possible))
    kind = random.choice(list(possible[setting]))
    of = random.choice(list(possible[setting][kind]))
    file = random.choice(possible[setting][kind][of])
    return _damaged(number, setting, kind, file, of, images[setting], random)


def _among(candidates: Candidates, only: Collection[str]) -> Candidates:
    """Return the candidates of the wanted kinds."""
    kinds = [kind for kind in KINDS if kind in only] or KINDS
    of_files = {of for of in only if of not in KINDS}
    found = {
        kind: {of: files for of, files in candidates[kind].items() if of in of_files or not of_files} for kind in kinds
    }
    return {kind: by_file for kind, by_file in found.items() if by_file}


def _candidates(image: Image) -> Candidates:
    found: dict[str, dict[str, list[str]]] = {kind: {} for kind in KINDS}
    for file, of in image.kinds.items():
        content = image.files[file]
        can_be = {
            BIT: bool(content),
            CUT: bool(content),
            DELETION: True,
            SWAP: bool(_swaps(image, file)),
            OLDER: bool(_older(image, file)),
        }
        for kind in KINDS:
            if can_be[kind]:
                found[kind].setdefault(of, []).append(file)
    return found


def _swaps(image: Image, file: str) -> list[tuple[str, bytes]]:
    """Return files that can replace a file: of other partitions or, for a log directory's file, of another broker.

    Their bytes differ from the file's.
    """
    at, content = partition_of(file), image.files[file]
    if at is None:
        other = image.others.get(file)
        return [] if other is None or other == content else [(f"another broker's {file}", other)]
    same = [one for one in image.same_kind(file) if partition_of(one) != at]
    named = [one for one in same if Path(one).name == Path(file).name]
    return [(one, image.files[one]) for one in sorted(named or same) if image.files[one] != content]


def _older(image: Image, file: str) -> list[tuple[str, bytes]]:
    """Return the earlier contents of a file that differ."""
    found = [(f"as of stage {stage}", files.get(file)) for stage, files in enumerate(image.older, 1)]
    return [(text, content) for text, content in found if content is not None and content != image.files[file]]


def _damaged(number: int, setting: Setting, kind: str, file: str, of: str, image: Image, random: Random) -> Damage:
    content = image.files[file]
    if kind == BIT:
        at = _log_byte(content, random) if of in (CLOSED_LOG, LAST_LOG) else random.randrange(len(content))
        bit = random.randrange(8)
        changed = bytearray(content)
        changed[at] ^= 1 << bit
        is_hidden = of in (CLOSED_LOG, LAST_LOG)
        return Damage(number, setting, kind, file, of, bytes(changed), f"byte {at}, bit {bit}", is_hidden)
    if kind == CUT:
        left = random.randrange(len(content))
        return Damage(number, setting, kind, file, of, content[:left], f"{left} of {len(content)} bytes are left")
    if kind == DELETION:
        return Damage(number, setting, kind, file, of, None, f"{len(content)} bytes")
    text, other = random.choice(_swaps(image, file) if kind == SWAP else _older(image, file))
    return Damage(number, setting, kind, file, of, other, text)


def _log_byte(content: bytes, random: Random) -> int:
    """Return the position of a byte, in headers and in records equally often: most bytes are in records."""
    position, starts = 0, []
    for batch in read_batches(content):
        starts.append((position, len(batch.data)))
        position += len(batch.data)
    if not starts:
        return random.randrange(len(content))
    start, size = random.choice(starts)
    return start + (random.randrange(HEADER_BYTES) if random.random() < 0.5 else random.randrange(HEADER_BYTES, size))


def make(damage: Damage, directory: Path) -> None:
    """Damage the file in a log directory."""
    path = directory / damage.file
    if damage.content is None:
        path.unlink()
    else:
        path.write_bytes(damage.content)
