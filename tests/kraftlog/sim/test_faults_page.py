"""docs/faults.md and docs/faults/ say what the code says."""

from __future__ import annotations

import re

from kraftlog.sim.broker_log.checkers.rules import NUMBERS
from kraftlog.sim.broker_log.zoo import broker_log_bugs, connection_bugs
from kraftlog.sim.engine.mutation import MUTATIONS
from kraftlog.sim.quorum.fault_kinds import KINDS
from kraftlog.sim.quorum.invariants.catalogue import ALL
from kraftlog.sim.quorum.zoo import controller_bugs, evidence_bugs, snapshot_bugs, state_machine_bugs
from kraftlog.sim.replication.checkers.rules import NUMBERS as REPLICATION_NUMBERS
from kraftlog.sim.replication.zoo import partition_replication_bugs, start_and_end_bugs, trust_bugs
from kraftlog.sim.worlds import WORLDS
from kraftlog.sim.zoo.catalogue import NAMES
from tests.paths import ROOT

PAGES = ROOT / "docs" / "faults"
FIRST = (ROOT / "docs" / "faults.md").read_text()
INVARIANTS = (PAGES / "invariants.md").read_text()
BUGS = (PAGES / "known-bugs.md").read_text()
PAGE = "\n".join([FIRST, *(page.read_text() for page in sorted(PAGES.glob("*.md")))])
WORDS = " ".join(PAGE.split())
"""Without ends of lines."""
(
    SNAPSHOT_BUGS,
    CONTROLLER_BUGS,
    EVIDENCE_BUGS,
    STATE_MACHINE_BUGS,
    LOG_BUGS,
    CONNECTION_BUGS,
    REPLICATION_BUGS,
    START_BUGS,
    TRUST_BUGS,
) = (
    [name for name in NAMES if MUTATIONS[name].patches.__module__ == module.__name__]
    for module in (
        snapshot_bugs,
        controller_bugs,
        evidence_bugs,
        state_machine_bugs,
        broker_log_bugs,
        connection_bugs,
        partition_replication_bugs,
        start_and_end_bugs,
        trust_bugs,
    )
)
AT_THE_END = {44}
"""Invariants that are no class of the package: convergence, which is looked at when the faults are over."""


def test_it_counts_right() -> None:
    assert f"There are {len(KINDS)} kinds of faults. The {len(ALL)} invariants" in WORDS
    assert f"the {len(NAMES)} bugs that the simulator must catch" in FIRST
    assert f"There are {len(NAMES)}: " in WORDS
    assert [int(count) for count in re.findall(r"^## .*: (\d+) bugs$", BUGS, re.MULTILINE)] == [
        len(names)
        for names in (
            SNAPSHOT_BUGS,
            CONTROLLER_BUGS,
            EVIDENCE_BUGS,
            STATE_MACHINE_BUGS,
            LOG_BUGS,
            CONNECTION_BUGS,
            REPLICATION_BUGS,
            START_BUGS,
            TRUST_BUGS,
        )
    ]


def is_named(kind: str) -> bool:
    short = kind.partition(": ")[2]
    return any(name in WORDS for name in (f"`{kind}`", f"`{short}`", f"`{short.removeprefix('cut, ')}`"))


def test_it_names_every_fault() -> None:
    kinds = {kind for world in WORLDS.values() for kind in world.fault_kinds}
    assert [kind for kind in sorted(kinds) if not is_named(kind)] == []


def test_it_lists_every_invariant() -> None:
    items = re.findall(r"^- \*\*([0-9, ]+)\*\*: ", INVARIANTS, re.MULTILINE)
    numbers = {int(number) for item in items for number in item.split(",")}
    assert {kind.number for kind in ALL} | {*NUMBERS, *REPLICATION_NUMBERS} <= numbers


def test_its_table_of_bugs_is_the_zoos() -> None:
    rows = re.findall(r"^\| (.+) \| (.+) \| (\d+|a node stops) \| (\d+) \|$", BUGS, re.MULTILINE)
    told = [(name, origin) for name, origin, _, _ in rows]
    assert told == [
        (name, MUTATIONS[name].origin)
        for name in (
            *SNAPSHOT_BUGS,
            *CONTROLLER_BUGS,
            *EVIDENCE_BUGS,
            *STATE_MACHINE_BUGS,
            *LOG_BUGS,
            *CONNECTION_BUGS,
            *REPLICATION_BUGS,
            *START_BUGS,
            *TRUST_BUGS,
        )
    ]
    numbers = {int(number) for _, _, number, _ in rows if number.isdigit()}
    assert numbers <= {kind.number for kind in ALL} | AT_THE_END | {*NUMBERS, *REPLICATION_NUMBERS}
    assert all(int(seeds) > 0 for _, _, _, seeds in rows)


def test_the_tests_that_it_names_are_there() -> None:
    paths = set(re.findall(r"`(tests/[a-z_/]+(?:\.py)?)`", PAGE))
    assert len(paths) > 100
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
