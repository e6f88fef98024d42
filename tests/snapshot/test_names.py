"""Rule SN-02: the names of snapshot files; no other file counts as one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbase.errors import StorageError
from kraftbase.types import Epoch, Offset
from raft.core.types import OffsetAndEpoch
from snapshot.names import BOOTSTRAP_NAME, id_of, is_leftover, parse_snapshot_name, part_name, snapshot_name
from tests.snapshot.builders import an_id

NAME = "00000000000000000500-0000000003.checkpoint"

IDS = st.builds(
    OffsetAndEpoch,
    epoch=st.integers(0, 2**31 - 1).map(Epoch),
    offset=st.integers(0, 2**63 - 1).map(Offset),
)
TOKENS = st.text("0123456789abcdef", min_size=1, max_size=20)


@st.composite
def almost_names(draw: st.DrawFn) -> str:
    """A name of any kind with one character changed, left out or put in."""
    snapshot_id, token = draw(IDS), draw(TOKENS)
    finished = snapshot_name(snapshot_id)
    name = draw(st.sampled_from([finished, part_name(snapshot_id, token), f"{finished}.deleted"]))
    position = draw(st.integers(0, len(name)))
    put_in = draw(st.text(max_size=1) | st.sampled_from("0123456789-.afg\n٣"))
    return name[:position] + put_in + name[position + draw(st.integers(0, 1)) :]


NAMES = almost_names() | st.text(max_size=60)


def test_sn02_a_name_is_the_end_offset_and_the_epoch_with_leading_zeros() -> None:
    assert snapshot_name(an_id(500, 3)) == NAME
    assert part_name(an_id(500, 3), "0a1b") == "00000000000000000500-0000000003-0a1b.checkpoint.part"


@given(IDS)
def test_sn02_a_name_is_read_back_as_the_id(snapshot_id: OffsetAndEpoch) -> None:
    name = snapshot_name(snapshot_id)
    assert parse_snapshot_name(name) == (None if name == BOOTSTRAP_NAME else snapshot_id)
    assert id_of(name) == id_of(f"/some/directory/{name}") == snapshot_id
    assert not is_leftover(name)


@given(NAMES)
def test_sn02_whatever_is_read_as_an_id_is_the_name_of_that_id(name: str) -> None:
    found = parse_snapshot_name(name)
    assert found is None or snapshot_name(found) == name


@given(IDS, TOKENS)
def test_sn02_unfinished_and_deleted_ones_are_leftovers_and_no_snapshots(
    snapshot_id: OffsetAndEpoch, token: str
) -> None:
    for name in (part_name(snapshot_id, token), f"{snapshot_name(snapshot_id)}.deleted"):
        assert is_leftover(name)
        assert parse_snapshot_name(name) is None


@given(NAMES)
def test_sn02_no_name_is_both_a_snapshot_and_a_leftover(name: str) -> None:
    assert not (is_leftover(name) and parse_snapshot_name(name) is not None)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".checkpoint",
        "500-3.checkpoint",
        "0" + NAME,
        NAME[1:],
        NAME + "\n",
        " " + NAME,
        NAME.upper(),
        NAME.replace("-", "_"),
        NAME.replace("-", "--"),
        NAME.replace("-0", "-+"),
        NAME.replace(".checkpoint", ""),
        NAME.replace(".checkpoint", "Xcheckpoint"),
        NAME + ".part",
        NAME + ".deleted",
        NAME + ".tmp",
        NAME.replace("3", "٣"),
        "-0000000000000000500-0000000003.checkpoint",
        "09223372036854775808-0000000003.checkpoint",
        "00000000000000000500-2147483648.checkpoint",
        "00000000000000000500-0000000003-0a1b.checkpoint",
        "00000000000000000500.log",
    ],
)
def test_sn02_everything_else_is_no_snapshot(name: str) -> None:
    assert parse_snapshot_name(name) is None
    with pytest.raises(StorageError, match="is not named like a snapshot") as refusal:
        id_of(f"data/snapshots/{name}")
    assert f"data/snapshots/{name}" in str(refusal.value)


@pytest.mark.parametrize(
    "name",
    [
        NAME,
        NAME + ".part",
        NAME + ".DELETED",
        NAME + ".deleted.deleted",
        NAME + ".deleted\n",
        "x" + NAME + ".deleted",
        "500-3.checkpoint.deleted",
        "00000000000000000500-0000000003-.checkpoint.part",
        "00000000000000000500-0000000003-0A1B.checkpoint.part",
        "00000000000000000500-0000000003-xyz.checkpoint.part",
        "00000000000000000500-0000000003-0a1b.checkpoint.deleted",
        "00000000000000000500-0000000003-0a1b.checkpoint",
        "notes.part",
        "notes.deleted",
        ".part",
        "",
    ],
)
def test_sn02_what_is_named_otherwise_is_no_leftover(name: str) -> None:
    assert not is_leftover(name)


def test_sn02_the_largest_id_has_a_name() -> None:
    largest = an_id(2**63 - 1, 2**31 - 1)
    assert snapshot_name(largest) == "09223372036854775807-2147483647.checkpoint"
    assert parse_snapshot_name(snapshot_name(largest)) == largest
