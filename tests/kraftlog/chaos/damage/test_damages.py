"""Damages are drawn from the seed and their number alone, over all kinds of files; what the disks lose is counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kraftlog.chaos.brokers.ledger import At
from kraftlog.chaos.damage.contents import Contents, batches
from kraftlog.chaos.damage.damages import (
    BIT,
    CLOSED_LOG,
    CUT,
    DELETION,
    KINDS,
    LAST_LOG,
    OLDER,
    SETTINGS,
    SWAP,
    Image,
    draw,
    make,
)
from kraftlog.chaos.damage.disks import files_of, gone, lost, served, survivors
from kraftlog.kafka.record_batch import read_batches

ONE, TWO = At("one", 0), At("one", 1)


def segment(at: At, count: int, first: int = 0) -> bytes:
    return b"".join(batches(Contents(at, batch_count=first), count))


FILES = {
    "meta.properties": b"version=1",
    "log-start-offset-checkpoint": b"0\n0\n",
    "one-0/00000000000000000000.log": segment(ONE, 3),
    "one-0/00000000000000000000.index": b"12345678",
    "one-0/00000000000000000009.log": segment(ONE, 2, 3),
    "one-0/partition.metadata": b"version: 0 one",
    "one-1/00000000000000000000.log": segment(TWO, 4),
    "one-1/00000000000000000000.index": b"",
    "one-1/partition.metadata": b"version: 0 two",
}
EARLIER = {**FILES, "one-0/00000000000000000009.log": b"", "log-start-offset-checkpoint": b"0\n"}
IMAGES = {setting: Image(FILES, (EARLIER,), {"meta.properties": b"version=2"}) for setting in SETTINGS}


def test_a_damage_is_the_same_again() -> None:
    again = [draw(3, number, IMAGES) for number in range(1, 50)]
    assert again == [draw(3, number, IMAGES) for number in range(1, 50)]
    assert again != [draw(4, number, IMAGES) for number in range(1, 50)]


def test_every_kind_of_file_and_of_damage_comes_and_only_one_file_changes(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    seen: Counter[tuple[str, str]] = Counter()
    for number in range(1, 400):
        damage = draw(1, number, IMAGES)
        seen[damage.kind, damage.file_kind] += 1
        make(damage, tmp_path)
        found = files_of(tmp_path)
        changed = {name for name in FILES if found.get(name) != FILES[name]}
        assert changed == {damage.file}
        assert (damage.file in found) == (damage.kind != DELETION)
        (tmp_path / damage.file).write_bytes(FILES[damage.file])
    files = {"meta.properties", "log-start-offset-checkpoint", CLOSED_LOG, LAST_LOG, ".index", "partition.metadata"}
    assert {(kind, file) for kind in (BIT, CUT, DELETION) for file in files} <= set(seen)
    assert {file for kind, file in seen if kind == SWAP} == files - {"log-start-offset-checkpoint", "closed .log"}
    assert {file for kind, file in seen if kind == OLDER} == {LAST_LOG, "log-start-offset-checkpoint"}


def test_only_some_kinds_are_drawn() -> None:
    assert {draw(1, number, IMAGES, [CUT]).kind for number in range(50)} == {CUT}
    found = [draw(1, number, IMAGES, [LAST_LOG, BIT, CUT]) for number in range(50)]
    assert ({of.kind for of in found}, {of.file_kind for of in found}) == ({BIT, CUT}, {LAST_LOG})
    with pytest.raises(ValueError, match="no file has a damage of older copy"):
        draw(1, 1, IMAGES, [OLDER, "partition.metadata"])
    with pytest.raises(ValueError, match="bits"):
        draw(1, 1, IMAGES, ["bits"])
    assert len(KINDS) == 5


def test_batches_that_are_on_no_disk_any_more_are_lost() -> None:
    before = served(FILES, [ONE, TWO])
    assert {at: len(found) for at, found in before.items()} == {ONE: 5, TWO: 4}
    starts = {ONE: 0, TWO: 0}
    assert lost(before, before, starts) == {}
    assert gone(before, [FILES], starts) == {}
    without = {name: content for name, content in FILES.items() if "0009.log" not in name}
    assert len(lost(before, served(without, [ONE, TWO]), starts)[ONE]) == 2
    assert len(gone(before, [without, {}], starts)[ONE]) == 2
    last = FILES["one-0/00000000000000000009.log"]
    for name in ("one-0/00000000000000000009.log.damaged", "one-0.0f-stray/00000000000000000009.log", "one-0/9-7.cut"):
        aside = {**without, name: b"something else" + last}
        assert gone(before, [aside], starts) == {}
        assert gone(before, [without, aside], starts) == {}
        assert lost(before, served(aside, [ONE, TWO]), starts) != {}
    assert gone(before, [{**without, f"one-0.{'0' * 32}-delete/00000000000000000009.log": last}], starts) != {}
    assert gone(before, [{**without, "one-1/00000000000000000009.log": last}], starts) != {}
    assert lost(before, served(without, [ONE, TWO]), {ONE: 1, TWO: 0}) == {}


def test_a_damaged_log_still_has_its_other_batches() -> None:
    whole = FILES["one-1/00000000000000000000.log"]
    parts = [bytes(batch.data) for batch in read_batches(whole)]
    assert survivors(whole, whole) == whole
    assert survivors(whole, whole[:-1]) == b"".join(parts[:-1])
    assert survivors(whole, None) == b""
    changed = bytearray(whole)
    changed[len(parts[0]) + 70] ^= 1
    assert survivors(whole, bytes(changed)) == b"".join([parts[0], *parts[2:]])
    assert survivors(whole, segment(ONE, 3)) == b""
