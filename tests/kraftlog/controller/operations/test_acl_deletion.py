"""How DeleteAcls finds what its filters match: by the beginning of the content, and in turns (rule CT-63)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.errors import ErrorCode
from kraftlog.controller.operations import acl_deletion
from kraftlog.controller.operations.acl_deletion import AclDeletion
from kraftpb.v1.admin_pb2 import AclFilter, CreateAclsRequest, DeleteAclsRequest, DeleteAclsResponse, Operation
from kraftpb.v1.metadata_pb2 import AccessControlEntryRecord, MetadataRecord
from statemachine.query.acls import content_prefix, describe_acls
from statemachine.words.limits import RECORDS_PER_BATCH_MAX
from tests.effort import all_cases, examples
from tests.kraftlog.controller.lives import pages_held
from tests.kraftlog.controller.operations.test_acls import (
    ALL,
    ALLOW,
    ANY,
    LITERAL,
    MATCH,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
    an_entry,
    committed,
    deletion_of,
    entries_of,
    naively_matches,
    some_entries,
    some_filters,
)
from tests.statemachine.builders import create
from tests.statemachine.conftest import Bench
from tests.statemachine.states import Metadata

BY_ID = "SEARCH acls USING PRIMARY KEY (id=?)"
"""Whether an entry that was found turns ago still exists."""

EXACT = {"resource_type": TOPIC, "resource_name": "t", "pattern_type": LITERAL}


def many(count: int, **fields: Any) -> list[AccessControlEntryRecord]:
    return [an_entry(number, resource_name=f"t{number}", **fields) for number in range(count)]


def plans_of(state: Metadata, *filters: AclFilter) -> set[str]:
    """SQLite's plan for each statement of a deletion."""
    asked: list[str] = []
    state.connection.set_trace_callback(asked.append)
    deletion_of(state, *filters)
    state.connection.set_trace_callback(None)
    return {
        row[-1]
        for sql in dict.fromkeys(asked)
        for row in state.connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
    }


# --- how entries are looked up ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ()),
        ({"resource_type": ANY, "resource_name": "t"}, ()),
        ({"resource_type": TOPIC}, (TOPIC,)),
        ({"resource_type": TOPIC, "pattern_type": LITERAL}, (TOPIC,)),
        ({"resource_type": TOPIC, "resource_name": "t"}, (TOPIC, "t")),
        ({"resource_type": TOPIC, "resource_name": "t", "pattern_type": ANY, "principal": "User:a"}, (TOPIC, "t")),
        ({"resource_type": TOPIC, "resource_name": "t", "pattern_type": MATCH}, (TOPIC,)),
        (EXACT, (TOPIC, "t", LITERAL)),
        (EXACT | {"host": "*"}, (TOPIC, "t", LITERAL)),
        (EXACT | {"principal": "User:a", "host": "*"}, (TOPIC, "t", LITERAL, "User:a", "*")),
        (
            EXACT | {"principal": "User:a", "host": "*", "operation": READ, "permission_type": ALLOW},
            (TOPIC, "t", LITERAL, "User:a", "*", READ, ALLOW),
        ),
    ],
)
def test_a_filter_looks_up_as_much_of_the_content_as_it_names(
    fields: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    assert content_prefix(AclFilter(**fields)) == expected


@pytest.mark.parametrize("further", [{}, {"principal": "User:alice"}, {"operation": WRITE}])
def test_an_exact_filter_is_found_by_the_index(monkeypatch: pytest.MonkeyPatch, further: dict[str, Any]) -> None:
    monkeypatch.setattr(acl_deletion, "COMPARISONS_PER_TURN", 2)  # so that it continues after what was found, too
    on_it = [an_entry(1_000 + number, host=f"192.0.2.{number}") for number in range(5)]
    plans = plans_of(committed(*many(50), *on_it), AclFilter(**EXACT, **further)) - {BY_ID}
    assert len(plans) == 2  # the first page, and those after it
    for plan in plans:
        assert plan.startswith("SEARCH acls USING COVERING INDEX acls_by_content (resource_type=? AND resource_name=?")
        assert "pattern_type=?" in plan


def test_an_exact_filter_reads_what_is_on_its_resource_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def matching(entries: list[AccessControlEntryRecord], acl_filter: AclFilter) -> list[AccessControlEntryRecord]:
        read.extend(entry.resource_name for entry in entries)
        return []

    monkeypatch.setattr(acl_deletion, "matching_acls", matching)
    state = committed(*many(20), an_entry(100), an_entry(101, operation=WRITE)).append(
        [MetadataRecord(access_control_entry=an_entry(102, operation=ALL))]
    )
    deletion_of(state, AclFilter(**EXACT))
    assert read == ["t"] * 3


def test_even_a_look_at_everything_needs_no_sorting() -> None:
    assert plans_of(committed(*many(5)), AclFilter()) == {"SCAN acls USING COVERING INDEX acls_by_content"}


# --- turns ------------------------------------------------------------------------------------------------------------


def test_what_is_looked_at_in_a_turn_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_deletion, "COMPARISONS_PER_TURN", 4)
    response = DeleteAclsResponse()
    filters = [AclFilter(operation=READ), AclFilter(host="*"), AclFilter(**EXACT)]
    deletion = AclDeletion(committed(*many(5)), DeleteAclsRequest(filters=filters), response)
    turns = []
    while not deletion.is_found:
        before = deletion._comparisons
        turns.append(deletion.next_page())
        assert deletion._comparisons - before <= 4 + 1
    assert [records == [] for records in turns] == [True, True, False]
    assert [len(answer.deleted) for answer in response.filters] == [5, 5, 0]


def test_a_page_is_given_until_it_is_appended() -> None:
    deletion = AclDeletion(committed(*many(3)), DeleteAclsRequest(filters=[AclFilter()]), DeleteAclsResponse())
    first = deletion.next_page()
    assert first is not None and len(first) == 3
    assert deletion.next_page() == first
    deletion.appended()
    assert deletion.next_page() is None


def test_a_deletion_that_finds_nothing_ends() -> None:
    response = DeleteAclsResponse()
    deletion = AclDeletion(committed(), DeleteAclsRequest(filters=[AclFilter()]), response)
    assert deletion.next_page() is None
    assert [list(answer.deleted) for answer in response.filters] == [[]]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(some_entries, max_size=12), st.lists(some_filters, max_size=4), st.integers(1, 5))
def test_however_many_turns_it_takes_it_finds_what_a_naive_definition_does(
    entries: list[AccessControlEntryRecord], filters: list[AclFilter], comparisons: int
) -> None:
    for number, entry in enumerate(entries):
        entry.id = (2_000 + number).to_bytes(16, "big")
    distinct = {of.SerializeToString()[18:]: of for of in entries}.values()
    half = len(distinct) // 2
    state = committed(*list(distinct)[:half]).append(
        MetadataRecord(access_control_entry=of) for of in list(distinct)[half:]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acl_deletion, "COMPARISONS_PER_TURN", comparisons)
        records, response = deletion_of(state, *filters)
    matched = [[of.id for of in entries_of(state) if naively_matches(given_filter, of)] for given_filter in filters]
    assert [[entry.id for entry in answer.deleted] for answer in response.filters] == matched
    removed = [record.remove_access_control_entry.id for record in records]
    assert removed == sorted({acl_id for ids in matched for acl_id in ids})


# --- through the controller -------------------------------------------------------------------------------------------


def deleting(*filters: AclFilter) -> Operation:
    return Operation(delete_acls=DeleteAclsRequest(filters=filters))


async def with_entries(bench: Bench, count: int) -> list[bytes]:
    """This many entries for topics of their own, by id."""
    request = CreateAclsRequest(entries=[an_entry(resource_name=f"t{number}") for number in range(count)])
    result = await bench.done(Operation(create_acls=request))
    return sorted(answer.id for answer in result.create_acls.results)


async def test_ct12_others_are_decided_while_a_filter_looks_at_everything(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acl_deletion, "COMPARISONS_PER_TURN", 3)
    ids = await with_entries(bench, 10)
    await bench.with_brokers(1)
    before = bench.log.next_append_offset
    with pages_held(monkeypatch):
        results = await bench.submit(deleting(AclFilter()))
        await bench.done(create("meanwhile"))
        await bench.done(deleting(AclFilter(resource_type=TOPIC, resource_name="t0", pattern_type=LITERAL)))
        assert (results, bench.controller.has_pages) == ([], True)
        created = bench.log.next_append_offset
        assert created == before + 3  # the topic, its partition, and one entry less
    await bench.answered(results)
    (answer,) = results[0].delete_acls.filters
    left = [entry.id for entry in answer.deleted]
    assert len(left) == 9 and set(left) < set(ids)  # what was removed meanwhile is not removed once more
    assert entries_of(bench.controller.state) == []
    assert bench.log.next_append_offset == results[0].end_offset == created + 9


async def test_ct63_a_deletion_of_too_many_is_refused_in_the_end_and_removes_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acl_deletion, "COMPARISONS_PER_TURN", 3)
    monkeypatch.setattr("statemachine.words.limits.RECORDS_PER_BATCH_MAX", 10)
    ids = await with_entries(bench, 8)
    monkeypatch.setattr("statemachine.words.limits.RECORDS_PER_BATCH_MAX", 7)
    before = bench.log.next_append_offset
    result = await bench.run(deleting(AclFilter()))
    assert (result.error_code, result.end_offset) == (ErrorCode.RECORD_LIST_TOO_LARGE, -1)
    assert bench.log.next_append_offset == before
    assert len(entries_of(bench.controller.state)) == len(ids)


async def test_ct12_a_batch_of_removals_is_appended_whole(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """More comparisons than one turn has, and as many records as one batch."""
    count = RECORDS_PER_BATCH_MAX if all_cases() else 400
    monkeypatch.setattr("statemachine.words.limits.RECORDS_PER_BATCH_MAX", count)
    if not all_cases():
        monkeypatch.setattr(acl_deletion, "COMPARISONS_PER_TURN", 50)
    for number in range(0, count, count // 2):
        entries = [an_entry(resource_name=f"t{number + index}") for index in range(count // 2)]
        await bench.done(Operation(create_acls=CreateAclsRequest(entries=entries)))
    batches = len(bench.log.batches)
    result = await bench.done(deleting(AclFilter(pattern_type=LITERAL), AclFilter(pattern_type=PREFIXED)))
    assert [len(answer.deleted) for answer in result.delete_acls.filters] == [count, 0]
    assert len(bench.log.batches) == batches + 1
    assert not list(describe_acls(bench.store.reader, AclFilter()))
