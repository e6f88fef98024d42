"""The verdict on a damage: a pure function of the damage, the expected contents, and the observations after the start.

Good verdicts:

- same: every record is read, in order and once, and all lookups return the expected answers.
- named error: unreadable records are refused, only where the damage is, and the broker's output names the damage.
- hidden: a changed bit within a batch, which a start cannot detect in Kafka's format; a client or `kraftlog verify`
  detects it by the batch's CRC.

Bad verdicts:

- lost: acknowledged records are truncated on another broker, on no disk, or outside the log that is served.
- silent: readers skip records, or get wrong records or answers, without an error.
- unnamed: an error that the output does not explain, or outside the place of the damage.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kraftlog.broker.settings import PARTITIONS_NAME
from kraftlog.chaos.brokers.ledger import At
from kraftlog.chaos.damage.contents import Contents, Entry, replicas_of
from kraftlog.chaos.damage.damages import Damage
from kraftlog.chaos.damage.reading import Reading


class Verdict(StrEnum):
    """The verdict on a damage."""

    SAME = "same"
    NAMED = "named error"
    HIDDEN = "hidden"
    LOST = "lost"
    SILENT = "silent"
    UNNAMED = "unnamed"

    @property
    def is_well(self) -> bool:
        """Whether the verdict is good."""
        return self in WELL


WELL: Final = frozenset({Verdict.SAME, Verdict.NAMED, Verdict.HIDDEN})
COMPLAINT: Final = re.compile(r"level='(warning|error|critical)'|^error: ")
"""Matches a broker's warnings and errors. A traceback does not count as naming a damage."""
STORIES_MAX: Final = 12


@dataclass(slots=True)
class Seen:
    """The observations after the start."""

    readings: Mapping[At, Reading]
    up: Collection[int]
    """The brokers that were unfenced."""
    again: Mapping[At, Reading] = field(default_factory=dict)
    """The readings of partitions that the damaged broker did not lead at first, after it became their leader."""
    not_in_sync: Collection[At] = ()
    """The partitions with a replica that was not in sync at the end."""
    output: str = ""
    """The output of the damaged broker, and other brokers' lines about bytes that they refused."""
    cut: Mapping[int, Mapping[At, list[int]]] = field(default_factory=dict)
    """By other broker, the base offsets of batches that its logs had before the start, but not after it."""
    gone: Mapping[At, list[int]] = field(default_factory=dict)
    """The base offsets of batches that are on no disk, although the damage itself did not remove them."""
    verified: bool = False
    """Whether `kraftlog verify` reports the damaged file as damaged."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict with its reasons."""

    verdict: Verdict
    stories: tuple[str, ...] = ()
    found_by: str = ""
    """For a hidden damage: what detects it, "client", "verify" or both."""


def judge(damage: Damage, ledger: Mapping[At, Contents], damaged_broker: int, seen: Seen) -> Outcome:
    """Return the verdict on a damage."""
    gone = [f"batches of {at} at {_few(offsets)} are no longer on any disk" for at, offsets in seen.gone.items()]
    gone += [
        f"broker {broker_id} has cut batches of {at} at {_few(offsets)}"
        for broker_id, by_partition in seen.cut.items()
        for at, offsets in by_partition.items()
    ]
    lost, silent, refused = [*gone], list[str](), dict[At, str]()
    readings = [(at, seen.readings.get(at, Reading(error="it was not read"))) for at in ledger]
    for at, reading in [*readings, *seen.again.items()]:
        if reading.error:
            refused[at] = reading.error
        lost += missing_ends(ledger[at], reading)
        silent += wrong_answers(ledger[at], reading)
    if damage.is_hidden and not gone:
        hidden = _hidden(damage, seen, [*lost, *silent], refused)
        if hidden is not None:
            return hidden
    if lost:
        return Outcome(Verdict.LOST, _stories(lost + silent))
    if silent:
        return Outcome(Verdict.SILENT, _stories(silent))
    return _refusals(damage, damaged_broker, seen, refused)


def _hidden(damage: Damage, seen: Seen, problems: list[str], refused: Mapping[At, str]) -> Outcome | None:
    """Return HIDDEN for a bit within a batch that the start did not detect, if only this partition has problems."""
    at = damage.at
    readings = [of[at] for of in (seen.readings, seen.again) if at is not None and at in of]
    bad_batches = any(reading.bad_batches for reading in readings)
    if not problems and not bad_batches:
        return None
    if not all(problem.startswith(f"{at}: ") for problem in problems) or set(refused) - {at}:
        return None
    by = [who for who, is_found in (("client", bad_batches), ("verify", seen.verified)) if is_found]
    return Outcome(Verdict.HIDDEN, _stories(problems), " and ".join(by)) if by else None


def _refusals(damage: Damage, damaged_broker: int, seen: Seen, refused: Mapping[At, str]) -> Outcome:
    """Return the verdict if there are only errors or replicas that are not in sync, or nothing is wrong."""
    stories = [f"{at}: {error}" for at, error in refused.items()]
    stories += [f"{at} has a replica that is not in sync" for at in seen.not_in_sync if at not in refused]
    if damaged_broker not in seen.up:
        stories.append(f"broker {damaged_broker} did not start")
    others = {broker_id for at in seen.readings for broker_id in replicas_of(at.topic)} - {damaged_broker} - {*seen.up}
    stories += [f"broker {broker_id} did not start, and nothing of it is damaged" for broker_id in sorted(others)]
    if not stories:
        return Outcome(Verdict.SAME)
    names = named(damage, seen.output)
    touched = set(refused) | set(seen.not_in_sync)
    beyond = {at for at in touched if not _may_touch(damage, damaged_broker, at)}
    if not names:
        return Outcome(Verdict.UNNAMED, _stories([*stories, "the broker's output does not name it"]))
    if beyond or others or (damage.at is not None and damaged_broker not in seen.up):
        return Outcome(Verdict.UNNAMED, _stories([*stories, "this is beyond the damage", *names]))
    return Outcome(Verdict.NAMED, _stories([*stories, *names]))


def _may_touch(damage: Damage, damaged_broker: int, at: At) -> bool:
    """Whether the damage may affect a partition: the file's own, or any partition in the log directory."""
    return damaged_broker in replicas_of(at.topic) if damage.at is None else at == damage.at


def named(damage: Damage, output: str) -> list[str]:
    """Return the warnings and errors a broker printed that name the damaged file, its partition or log directory."""
    if damage.at is None:
        place = re.compile(rf"{re.escape(damage.file)}|/{PARTITIONS_NAME}(?![/\w.-])")
    else:
        topic, partition = damage.at
        name = re.escape(str(damage.at))
        place = re.compile(rf"\b{name}(?![\w.-])|topic='{re.escape(topic)}' partition={partition}\b")
    return [line for line in output.splitlines() if COMPLAINT.search(line) and place.search(line)]


def missing_ends(contents: Contents, reading: Reading) -> list[str]:
    """Return a text for acknowledged records before or after the served log, if there is no error."""
    at, found = contents.at, []
    if reading.error and not reading.entries and reading.log_start_offset < 0:
        return []
    if reading.log_start_offset > contents.log_start_offset:
        found.append(f"{at}: the log starts at {reading.log_start_offset}, not {contents.log_start_offset}")
    if not reading.error and reading.log_end_offset < contents.log_end_offset:
        found.append(f"{at}: the log ends at {reading.log_end_offset}, not {contents.log_end_offset}")
    return found


def wrong_answers(contents: Contents, reading: Reading) -> list[str]:
    """Return the differences between answers and expected contents. A refused partition may have been read in part."""
    at = contents.at
    found = [f"{at}: a client refuses a batch: {text}" for text in reading.bad_batches]
    found += _differences(f"{at}", contents.readable, reading.entries, is_whole=not reading.error)
    found += _differences(
        f"{at}: of committed records", contents.committed, reading.committed, is_whole=not reading.error
    )
    by_offset = {entry.offset: entry for entry in contents.readable}
    bad_seeks = [offset for offset, entry in reading.seeks.items() if entry != by_offset[offset]]
    if bad_seeks:
        found.append(f"{at}: readers that begin at {_few(bad_seeks)} do not get the record there")
    lookups = contents.lookups()
    for timestamp, answer in reading.lookups.items():
        if answer != lookups[timestamp]:
            found.append(f"{at}: ListOffsets for {timestamp} answers {answer}, not {lookups[timestamp]}")
    if reading.stuck_at is not None:
        found.append(f"{at}: a reader gets nothing from {reading.stuck_at} on, and no error")
    if reading.resent_offset is not None and contents.last_idempotent is not None:
        expected = contents.last_idempotent[0]
        if reading.resent_offset not in (expected, -1):
            found.append(
                f"{at}: a batch that was sent again is stored at {reading.resent_offset}; it was at {expected}"
            )
    if reading.error:
        return found
    largest = contents.largest[1], contents.largest[0]
    if reading.largest is not None and reading.largest != largest:
        found.append(f"{at}: the largest timestamp is answered {reading.largest}, not {largest}")
    stable = contents.log_end_offset if contents.last_stable_offset is None else contents.last_stable_offset
    if reading.last_stable_offset != stable:
        found.append(f"{at}: the last stable offset is {reading.last_stable_offset}, not {stable}")
    if reading.log_start_offset < contents.log_start_offset:
        found.append(f"{at}: the log starts at {reading.log_start_offset}, not {contents.log_start_offset}")
    if reading.log_end_offset > contents.log_end_offset:
        found.append(f"{at}: the log ends at {reading.log_end_offset}, not {contents.log_end_offset}")
    if reading.resent_error:
        found.append(f"{at}: a batch that was sent again is refused: {reading.resent_error}")
    return found


def _differences(what: str, expected: list[Entry], found: list[Entry], *, is_whole: bool) -> list[str]:
    """Return texts on missing, wrong, duplicate or misordered records. If not `is_whole`, a prefix is enough."""
    if found == (expected if is_whole else expected[: len(found)]):
        return []
    by_offset = {entry.offset: entry for entry in expected}
    offsets = [entry.offset for entry in found]
    foreign = [entry.offset for entry in found if by_offset.get(entry.offset) != entry]
    end = expected[-1].offset + 1 if is_whole and expected else max(offsets, default=-1)
    missing = sorted({offset for offset in by_offset if offset < end} - set(offsets))
    stories = []
    if missing:
        stories.append(f"{what}: {len(missing)} records are skipped, at {_few(missing)}")
    if foreign:
        stories.append(f"{what}: {len(foreign)} records are not those that were written, at {_few(foreign)}")
    if len(set(offsets)) < len(offsets):
        stories.append(f"{what}: {len(offsets) - len(set(offsets))} records come twice")
    return stories or [f"{what}: the records are out of order"]


def _few(offsets: Collection[int]) -> str:
    shown = ", ".join(map(str, sorted(offsets)[:5]))
    return shown if len(offsets) <= 5 else f"{shown} and {len(offsets) - 5} more"


def _stories(stories: list[str]) -> tuple[str, ...]:
    return tuple(stories[:STORIES_MAX])
