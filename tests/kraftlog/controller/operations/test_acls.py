"""CreateAcls, DeleteAcls and the filters of access control entries (rule CT-63)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import is_reserved
from kraftlog.controller.operations import acl_deletion
from kraftlog.controller.operations.acl_deletion import AclDeletion
from kraftlog.controller.operations.acls import create_acls
from kraftpb.v1.admin_pb2 import (
    AclFilter,
    AclFilterResult,
    AclResult,
    CreateAclsRequest,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kraftpb.v1.metadata_pb2 import AccessControlEntryRecord, MetadataRecord
from statemachine.metadata.state import MetadataState
from statemachine.query.acls import describe_acls, matching_acls
from statemachine.words.limits import RECORDS_PER_BATCH_MAX
from tests.effort import examples
from tests.statemachine.builders import an_id
from tests.statemachine.states import Metadata, metadata

TOPIC, GROUP, CLUSTER = 2, 3, 4
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
READ, WRITE, ALL = 3, 4, 2
DENY, ALLOW = 2, 3


def an_entry(number: int | None = None, **fields: Any) -> AccessControlEntryRecord:
    entry = AccessControlEntryRecord(
        resource_type=TOPIC,
        resource_name="t",
        pattern_type=LITERAL,
        principal="User:alice",
        host="*",
        operation=READ,
        permission_type=ALLOW,
    )
    entry.MergeFrom(AccessControlEntryRecord(id=b"" if number is None else an_id(number)))
    for name, value in fields.items():
        setattr(entry, name, value)
    return entry


def a_filter(fields: dict[str, Any]) -> AclFilter:
    return AclFilter(**fields)


def committed(*entries: AccessControlEntryRecord) -> Metadata:
    return metadata(*(MetadataRecord(access_control_entry=entry) for entry in entries))


def created(
    state: Metadata, *entries: AccessControlEntryRecord, seed: int = 1
) -> tuple[list[AccessControlEntryRecord], list[AclResult]]:
    records, response = create_acls(state, CreateAclsRequest(entries=entries), Random(seed))
    assert all(record.WhichOneof("record") == "access_control_entry" for record in records)
    return [record.access_control_entry for record in records], list(response.results)


def entries_of(state: MetadataState) -> list[AccessControlEntryRecord]:
    """All entries by id, committed or not."""
    return sorted((entry for _, entry in state.acls_by_content((), None, -1)), key=lambda entry: entry.id)


def deletion_of(state: Metadata, *filters: AclFilter) -> tuple[list[MetadataRecord], DeleteAclsResponse]:
    """The result of a deletion, however many turns it takes."""
    response = DeleteAclsResponse()
    deletion = AclDeletion(state, DeleteAclsRequest(filters=filters), response)
    records = deletion.next_page()
    while not deletion.is_found:
        assert records == []
        records = deletion.next_page()
    return records or [], response


def deleted(state: Metadata, *filters: AclFilter) -> tuple[list[bytes], list[AclFilterResult]]:
    records, response = deletion_of(state, *filters)
    assert all(record.WhichOneof("record") == "remove_access_control_entry" for record in records)
    return [record.remove_access_control_entry.id for record in records], list(response.filters)


# --- CreateAcls -------------------------------------------------------------------------------------------------------


def test_an_entry_is_created_with_a_random_id() -> None:
    state = metadata()
    [record], [answer] = created(state, an_entry())
    assert answer.error_code == ErrorCode.NONE
    assert record.id == answer.id and len(record.id) == 16 and not is_reserved(record.id)
    assert record == an_entry(id=record.id)
    state.commit(MetadataRecord(access_control_entry=record))
    assert entries_of(state) == [record]


def test_ids_are_the_controllers_whatever_the_request_says() -> None:
    asked = an_entry(7)
    [record], _ = created(metadata(), asked)
    assert record.id != an_id(7)
    assert asked == an_entry(7)


def test_no_id_is_given_twice() -> None:
    [first], _ = created(metadata(), an_entry(), seed=5)
    [second], _ = created(committed(first), an_entry(host="192.0.2.1"), seed=5)
    assert first.id != second.id


def test_an_equal_entry_that_is_there_makes_no_record() -> None:
    records, [answer] = created(committed(an_entry(7)), an_entry())
    assert records == []
    assert answer == AclResult(id=an_id(7))


def test_an_entry_that_is_in_the_request_twice_is_created_once() -> None:
    [record], answers = created(metadata(), an_entry(), an_entry())
    assert answers == [AclResult(id=record.id)] * 2


@pytest.mark.parametrize(
    "difference",
    [
        {"resource_type": GROUP},
        {"resource_name": "u"},
        {"pattern_type": PREFIXED},
        {"principal": "User:bob"},
        {"host": "192.0.2.1"},
        {"operation": WRITE},
        {"permission_type": DENY},
    ],
)
def test_an_entry_that_differs_in_anything_is_another(difference: dict[str, Any]) -> None:
    records, _ = created(committed(an_entry(7)), an_entry(**difference))
    assert len(records) == 1


@pytest.mark.parametrize(
    "fields",
    [
        *({"resource_type": number} for number in (2, 3, 5, 6, 7)),
        {"resource_type": CLUSTER, "resource_name": "kafka-cluster"},
        *({"operation": number} for number in range(2, 16)),
        {"resource_name": "*"},
        {"principal": "User:*"},
        {"principal": "User:CN=a:b,O=c"},
    ],
)
def test_kafkas_numbers_and_names_are_taken(fields: dict[str, Any]) -> None:
    records, _ = created(metadata(), an_entry(**fields))
    assert len(records) == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        *(({"resource_type": n}, f"the resource type is {n}; it must be between 2 and 7") for n in (-1, 0, 1, 8)),
        *(({"pattern_type": n}, f"the pattern type is {n}; it must be between 3 and 4") for n in (-1, 0, 1, 2, 5)),
        *(({"operation": n}, f"the operation is {n}; it must be between 2 and 15") for n in (-1, 0, 1, 16)),
        *(({"permission_type": n}, f"the permission type is {n}; it must be between 2 and 3") for n in (-1, 0, 1, 4)),
        ({"resource_name": ""}, "the resource name is empty"),
        ({"resource_type": CLUSTER}, "the cluster's resource name is kafka-cluster, not 't'"),
        ({"resource_type": CLUSTER, "resource_name": "*"}, "kafka-cluster, not '*'"),
        ({"principal": ""}, "'' is no principal"),
        ({"principal": "alice"}, "'alice' is no principal"),
        ({"principal": ":alice"}, "such as User:alice"),
        ({"principal": "User:"}, "'User:' is no principal"),
        ({"host": ""}, "the host is empty"),
    ],
)
def test_ct63_entries_that_cannot_be_are_refused(fields: dict[str, Any], words: str) -> None:
    records, [answer] = created(metadata(), an_entry(**fields))
    assert records == []
    assert answer.error_code == ErrorCode.INVALID_REQUEST and answer.id == b""
    assert words in answer.error_message


def test_entries_are_created_beside_others_that_are_refused() -> None:
    [record], answers = created(metadata(), an_entry(host=""), an_entry())
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert answers[1].id == record.id


@pytest.mark.parametrize("field", ["resource_name", "principal", "host"])
def test_far_too_long_names_are_an_invalid_request_of_the_whole(field: str) -> None:
    with pytest.raises(ApiError, match="1001 characters") as refused:
        created(metadata(), an_entry(None, **{field: "x" * 1001}))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(ApiError, match="1001 characters") as refused:
        deleted(metadata(), a_filter({field: "x" * 1001}))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_ct12_more_entries_than_a_batch_holds_are_refused_whole() -> None:
    with pytest.raises(ApiError, match="divide it") as refused:
        created(metadata(), *[an_entry()] * (RECORDS_PER_BATCH_MAX + 1))
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


# --- DeleteAcls -------------------------------------------------------------------------------------------------------


def test_what_a_filter_matches_is_deleted() -> None:
    state = committed(an_entry(1), an_entry(2, principal="User:bob"), an_entry(3, operation=WRITE))
    ids, [answer] = deleted(state, AclFilter(principal="User:alice"))
    assert ids == [an_id(1), an_id(3)]
    assert list(answer.deleted) == [an_entry(1), an_entry(3, operation=WRITE)]


def test_a_filter_that_matches_nothing_deletes_nothing() -> None:
    assert deleted(committed(an_entry(1)), AclFilter(host="192.0.2.1")) == ([], [AclFilterResult()])
    assert deleted(committed(an_entry(1))) == ([], [])


def test_an_entry_that_several_filters_match_is_in_each_answer_and_removed_once() -> None:
    state = committed(an_entry(1), an_entry(2, operation=WRITE))
    ids, answers = deleted(state, AclFilter(operation=READ), AclFilter())
    assert ids == [an_id(1), an_id(2)]
    assert [len(answer.deleted) for answer in answers] == [1, 2]


def test_a_filter_that_is_refused_leaves_the_others() -> None:
    ids, answers = deleted(committed(an_entry(1)), AclFilter(operation=99), AclFilter())
    assert ids == [an_id(1)]
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


def test_entries_that_are_not_committed_yet_are_deleted_too() -> None:
    state = metadata().append([MetadataRecord(access_control_entry=an_entry(1))])
    assert deleted(state, AclFilter())[0] == [an_id(1)]


def test_ct63_one_deletion_is_one_batch() -> None:
    entries = [an_entry(number, resource_name=f"t{number}") for number in range(RECORDS_PER_BATCH_MAX + 1)]
    state = committed(*entries)
    with pytest.raises(ApiError, match="divide it") as refused:
        deleted(state, AclFilter())
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    state = committed(*entries[:-1])
    assert len(deleted(state, AclFilter(), AclFilter())[0]) == RECORDS_PER_BATCH_MAX


def test_more_comparisons_than_the_controller_has_time_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_deletion, "COMPARISONS_MAX", 5)
    state = committed(an_entry(1), an_entry(2, operation=WRITE))
    assert len(deleted(state, *[AclFilter()] * 2)[0]) == 2
    with pytest.raises(ApiError, match="3 filters need more than 5 comparisons") as refused:
        deleted(state, *[AclFilter()] * 3)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    many = committed(*(an_entry(number, host=f"192.0.2.{number}") for number in range(9)))
    assert len(deleted(many, AclFilter())[0]) == 9  # one filter is always taken


# --- filters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        *(({"resource_type": n}, f"the resource type is {n}; it must be between 1 and 7") for n in (-1, 0, 8)),
        *(({"pattern_type": n}, f"the pattern type is {n}; it must be between 1 and 4") for n in (-1, 0, 5)),
        *(({"operation": n}, f"the operation is {n}; it must be between 1 and 15") for n in (-1, 0, 16)),
        *(({"permission_type": n}, f"the permission type is {n}; it must be between 1 and 3") for n in (-1, 0, 4)),
    ],
)
def test_ct63_filters_with_unknown_numbers_are_refused(fields: dict[str, int], words: str) -> None:
    given_filter = a_filter(fields)
    ids, [answer] = deleted(committed(an_entry(1)), given_filter)
    assert ids == [] and list(answer.deleted) == []
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert words in answer.error_message
    with pytest.raises(ApiError, match=words):
        describe_acls(committed().connection, given_filter)


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission_type"])
def test_any_is_as_good_as_nothing(field: str) -> None:
    entries = [an_entry(1), an_entry(2, resource_type=GROUP, pattern_type=PREFIXED, operation=ALL, permission_type=2)]
    assert matching_acls(entries, a_filter({field: ANY})) == entries


@pytest.mark.parametrize(
    ("name", "pattern_type", "expected"),
    [
        # (name, pattern type of the filter): which of the patterns below match
        ("orders", LITERAL, {"literal orders"}),
        ("orders", PREFIXED, {"prefixed orders"}),
        ("orders", ANY, {"literal orders", "prefixed orders"}),
        ("orders", MATCH, {"literal orders", "literal *", "prefixed orders", "prefixed ord"}),
        ("orders.eu", MATCH, {"literal *", "prefixed orders", "prefixed ord"}),
        ("ord", MATCH, {"literal *", "prefixed ord"}),
        ("ord", ANY, {"prefixed ord"}),
        ("*", ANY, {"literal *", "prefixed *"}),
        ("*", LITERAL, {"literal *"}),
        ("*", MATCH, {"literal *", "prefixed *"}),
        ("other", MATCH, {"literal *"}),
        ("", MATCH, {"literal *"}),
        (None, LITERAL, {"literal orders", "literal *"}),
        (None, PREFIXED, {"prefixed orders", "prefixed ord", "prefixed *"}),
        (None, MATCH, {"literal orders", "literal *", "prefixed orders", "prefixed ord", "prefixed *"}),
        (None, ANY, {"literal orders", "literal *", "prefixed orders", "prefixed ord", "prefixed *"}),
    ],
)
def test_patterns_are_matched_as_by_kafkas_resource_pattern_filter(
    name: str | None, pattern_type: int, expected: set[str]
) -> None:
    entries = [
        an_entry(1, resource_name="orders"),
        an_entry(2, resource_name="*"),
        an_entry(3, resource_name="orders", pattern_type=PREFIXED),
        an_entry(4, resource_name="ord", pattern_type=PREFIXED),
        an_entry(5, resource_name="*", pattern_type=PREFIXED),
    ]
    found = matching_acls(entries, AclFilter(resource_name=name, pattern_type=pattern_type))
    shown = {f"{'literal' if of.pattern_type == LITERAL else 'prefixed'} {of.resource_name}" for of in found}
    assert shown == expected
    if pattern_type == ANY:
        assert matching_acls(entries, AclFilter(resource_name=name)) == found


def test_the_operation_all_is_matched_by_its_number_only() -> None:
    entries = [an_entry(1, operation=ALL), an_entry(2)]
    assert matching_acls(entries, AclFilter(operation=ALL)) == entries[:1]
    assert matching_acls(entries, AclFilter(operation=READ)) == entries[1:]


def test_entries_are_described_by_id() -> None:
    state = committed(an_entry(3), an_entry(1, host="192.0.2.1"), an_entry(2, operation=WRITE))
    assert [entry.id for entry in describe_acls(state.connection, AclFilter())] == [an_id(1), an_id(2), an_id(3)]
    assert list(describe_acls(state.connection, AclFilter(operation=WRITE))) == [an_entry(2, operation=WRITE)]


names = st.sampled_from(["a", "ab", "abc", "b", "*"])
some_entries = st.builds(
    an_entry,
    resource_type=st.sampled_from([TOPIC, GROUP]),
    resource_name=names,
    pattern_type=st.sampled_from([LITERAL, PREFIXED]),
    principal=st.sampled_from(["User:alice", "User:bob"]),
    host=st.sampled_from(["*", "192.0.2.1"]),
    operation=st.sampled_from([ALL, READ]),
    permission_type=st.sampled_from([DENY, ALLOW]),
)
some_filters = st.builds(
    AclFilter,
    resource_type=st.sampled_from([None, ANY, TOPIC]),
    resource_name=st.none() | names,
    pattern_type=st.sampled_from([None, ANY, MATCH, LITERAL, PREFIXED]),
    principal=st.sampled_from([None, "User:alice"]),
    host=st.sampled_from([None, "*"]),
    operation=st.sampled_from([None, ANY, READ]),
    permission_type=st.sampled_from([None, ANY, ALLOW]),
)


def naively_matches(given_filter: AclFilter, entry: AccessControlEntryRecord) -> bool:
    """Kafka's ResourcePatternFilter.matches and AccessControlEntryFilter.matches, transcribed line by line."""
    for field in ("resource_type", "operation", "permission_type"):
        wanted = getattr(given_filter, field) or ANY
        if wanted not in (ANY, getattr(entry, field)):
            return False
    for field in ("principal", "host"):
        if getattr(given_filter, field) not in ("", getattr(entry, field)):
            return False
    pattern_type, name = given_filter.pattern_type or ANY, given_filter.resource_name
    if pattern_type not in (ANY, MATCH, entry.pattern_type):
        return False
    if not name:
        return True
    if pattern_type in (ANY, entry.pattern_type):
        return name == entry.resource_name
    if entry.pattern_type == LITERAL:
        return entry.resource_name in (name, "*")
    return name.startswith(entry.resource_name)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(some_entries, max_size=12), some_filters)
def test_filters_match_what_a_naive_definition_matches(
    entries: list[AccessControlEntryRecord], given_filter: AclFilter
) -> None:
    assert matching_acls(entries, given_filter) == [of for of in entries if naively_matches(given_filter, of)]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(some_entries, max_size=12), st.lists(some_filters, max_size=3))
def test_what_is_left_after_a_deletion_is_what_no_filter_matches(
    entries: list[AccessControlEntryRecord], filters: list[AclFilter]
) -> None:
    state = metadata()
    records, _ = create_acls(state, CreateAclsRequest(entries=entries), Random(1))
    state.commit(*records)
    everything = entries_of(state)
    assert {of.SerializeToString() for of in entries} == {an_entry_without_id(of) for of in everything}
    removals, _ = deletion_of(state, *filters)
    state.commit(*removals)
    assert entries_of(state) == [of for of in everything if not any(naively_matches(given, of) for given in filters)]


def an_entry_without_id(entry: AccessControlEntryRecord) -> bytes:
    bare = AccessControlEntryRecord()
    bare.CopyFrom(entry)
    bare.ClearField("id")
    return bare.SerializeToString()


@pytest.mark.parametrize("is_committed", [False, True])
def test_an_entry_that_was_removed_is_made_anew(is_committed: bool) -> None:
    """It is looked up by its content; what is removed and not committed yet does not count either."""
    entry = an_entry(1)
    state = committed(entry)
    removal, _ = deletion_of(state, a_filter({}))
    assert len(removal) == 1
    if is_committed:
        state.commit(*removal)
    else:
        state.append(removal)
    records, _ = create_acls(state, CreateAclsRequest(entries=[entry]), Random(1))
    assert len(records) == 1


def test_an_entry_that_says_something_else_now_is_found_by_that() -> None:
    before, after = an_entry(1, host="10.0.0.1"), an_entry(1, host="10.0.0.2")
    state = committed(before).append([MetadataRecord(access_control_entry=after)])
    found = state.acl_like(after)
    assert found is not None and found.id == after.id
    assert state.acl_like(before) is None
