"""AlterClientQuotas (rule CT-63): what is written, and every error."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.operations.quotas import alter_client_quotas
from kraftpb.v1.admin_pb2 import AlterClientQuotasRequest, ClientQuotaAlteration, ClientQuotaResult
from kraftpb.v1.metadata_pb2 import ClientQuotaRecord, MetadataRecord, QuotaEntity
from statemachine.tables.cluster_tables import quota_entity_key
from statemachine.words.limits import RECORDS_PER_BATCH_MAX
from tests.effort import examples
from tests.statemachine.states import Metadata, metadata

Named = tuple[tuple[str, str | None], ...]

ALICE: Named = (("user", "alice"),)
ANYBODY: Named = (("user", None),)
APP: Named = (("client-id", "app"),)
ALICES_APP: Named = (("user", "alice"), ("client-id", "app"))
ADDRESS: Named = (("ip", "192.0.2.1"),)


def entity(parts: Named) -> list[QuotaEntity]:
    return [QuotaEntity(entity_type=kind, entity_name=name) for kind, name in parts]


def alteration(parts: Named, key: str, value: float | None) -> ClientQuotaAlteration:
    return ClientQuotaAlteration(entity=entity(parts), key=key, value=value)


def quota(parts: Named, key: str, value: float) -> MetadataRecord:
    return MetadataRecord(client_quota=ClientQuotaRecord(entity=entity(parts), key=key, value=value))


def decided(
    state: Metadata, *alterations: ClientQuotaAlteration, validate_only: bool = False
) -> tuple[list[ClientQuotaRecord], list[ClientQuotaResult]]:
    request = AlterClientQuotasRequest(alterations=alterations, validate_only=validate_only)
    records, response = alter_client_quotas(state, request)
    return [record.client_quota for record in records], list(response.results)


def written(state: Metadata, *alterations: ClientQuotaAlteration) -> list[tuple[str, str, float | None]]:
    """Entity, key and value of each record, None for a removal; nothing may be refused."""
    records, answers = decided(state, *alterations)
    assert [answer.error_message for answer in answers if answer.error_code] == []
    return [(quota_entity_key(of.entity), of.key, None if of.remove else of.value) for of in records]


def refusal(state: Metadata, *alterations: ClientQuotaAlteration) -> str:
    """Why the only entity is an INVALID_REQUEST, with which no record is made."""
    records, [answer] = decided(state, *alterations)
    assert records == []
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.entity == alterations[0].entity
    return answer.error_message


# --- what is written --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [ALICE, ANYBODY, APP, (("client-id", None),), ALICES_APP])
@pytest.mark.parametrize(
    "key", ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"]
)
def test_quotas_of_users_and_client_ids_are_set(parts: Named, key: str) -> None:
    state = metadata()
    records, _ = decided(state, alteration(parts, key, 5))
    state.commit(*(MetadataRecord(client_quota=record) for record in records))
    assert state.client_quotas(quota_entity_key(entity(parts))) == {key: 5.0}


@pytest.mark.parametrize("parts", [ADDRESS, (("ip", "2001:db8::1"),), (("ip", None),)])
def test_quotas_of_addresses_are_set(parts: Named) -> None:
    key = quota_entity_key(entity(parts))
    assert written(metadata(), alteration(parts, "connection_creation_rate", 7)) == [
        (key, "connection_creation_rate", 7.0)
    ]


def test_the_default_of_a_type_is_another_entity_than_its_members() -> None:
    state = metadata(quota(ALICE, "request_percentage", 5))
    assert len(written(state, alteration(ANYBODY, "request_percentage", 5))) == 1
    assert len(written(state, alteration(ALICES_APP, "request_percentage", 5))) == 1


def test_the_order_in_which_an_entity_is_named_does_not_matter() -> None:
    state = metadata(quota(ALICES_APP, "request_percentage", 5))
    reversed_parts = ALICES_APP[::-1]
    assert written(state, alteration(reversed_parts, "request_percentage", 5)) == []
    asked = (alteration(ALICES_APP, "request_percentage", 6), alteration(reversed_parts, "producer_byte_rate", 7))
    records, answers = decided(state, *asked)
    assert [(of.key, of.value) for of in records] == [("request_percentage", 6.0), ("producer_byte_rate", 7.0)]
    assert [answer.entity for answer in answers] == [asked[0].entity]


def test_a_quota_that_has_the_value_already_makes_no_record() -> None:
    state = metadata(quota(ALICE, "request_percentage", 12.5))
    assert written(state, alteration(ALICE, "request_percentage", 12.5)) == []
    assert len(written(state, alteration(ALICE, "request_percentage", 12.25))) == 1


def test_a_quota_is_removed_and_one_that_is_not_there_makes_no_record() -> None:
    state = metadata(quota(ALICE, "request_percentage", 5))
    key = quota_entity_key(entity(ALICE))
    assert written(state, alteration(ALICE, "request_percentage", None)) == [(key, "request_percentage", None)]
    assert written(state, alteration(ALICE, "producer_byte_rate", None)) == []
    assert written(state, alteration(APP, "request_percentage", None)) == []


def test_one_that_an_earlier_version_knew_can_be_removed() -> None:
    state = metadata(quota(ALICE, "colour_rate", 5))
    key = quota_entity_key(entity(ALICE))
    assert written(state, alteration(ALICE, "colour_rate", None)) == [(key, "colour_rate", None)]


@pytest.mark.parametrize(
    ("parts", "key", "value"),
    [
        (ALICE, "request_percentage", 0.001),
        (ALICE, "request_percentage", 1e300),
        (ALICE, "controller_mutation_rate", 0.5),
        (ALICE, "producer_byte_rate", 1),
        (ALICE, "consumer_byte_rate", 2.0**62),
        (ALICE, "producer_byte_rate", float(2**63 - 1)),
        (ALICE, "producer_byte_rate", 1000.0000000001),
        (ADDRESS, "connection_creation_rate", 2**31 - 1),
    ],
)
def test_values_at_the_edges_are_taken(parts: Named, key: str, value: float) -> None:
    assert [of[2] for of in written(metadata(), alteration(parts, key, value))] == [value]


def test_validate_only_gives_the_same_answer_and_no_record() -> None:
    asked = (alteration(ALICE, "request_percentage", 5), alteration((), "request_percentage", 5))
    records, answers = decided(metadata(), *asked, validate_only=True)
    assert records == []
    assert answers == decided(metadata(), *asked)[1]


def test_an_entity_is_altered_whole_or_not_at_all() -> None:
    records, answers = decided(
        metadata(),
        alteration(ALICE, "request_percentage", 5),
        alteration(APP, "request_percentage", 6),
        alteration(ALICE, "producer_byte_rate", -1),
    )
    assert [quota_entity_key(record.entity) for record in records] == [quota_entity_key(entity(APP))]
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


# --- what is illegal --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((), "the entity is empty"),
        ((("group", "g"),), "'group' is not a type of entity"),
        ((("User", "g"),), "use user, client-id, ip"),
        ((("", "g"),), "'' is not a type of entity"),
        ((("user", ""),), "the user has an empty name"),
        ((("user", "alice"), ("client-id", "")), "the client-id has an empty name"),
        ((("ip", ""),), "the ip has an empty name"),
        ((("user", "alice"), ("user", "bob")), "more than one user"),
        ((("user", None), ("user", "bob")), "more than one user"),
        ((("user", "alice"), ("user", "alice")), "more than one user"),
        (
            (("user", "alice"), ("ip", "192.0.2.1")),
            "the entity ip '192.0.2.1' and user 'alice' has an ip and another type",
        ),
        (
            (("client-id", None), ("ip", None)),
            "the entity client-id <default> and ip <default> has an ip and another type",
        ),
        ((("user", "alice"), ("client-id", "app"), ("ip", "192.0.2.1")), "an ip must be the only part"),
        ((("ip", "localhost"),), "'localhost' is not an ip"),
        ((("ip", "192.0.2.256"),), "'192.0.2.256' is not an ip"),
    ],
)
@pytest.mark.parametrize("value", [5, None])
def test_ct63_entities_that_cannot_be_are_refused(parts: Named, words: str, value: float | None) -> None:
    assert words in refusal(metadata(), alteration(parts, "request_percentage", value))


@pytest.mark.parametrize(
    ("parts", "key", "words"),
    [
        (ALICE, "connection_creation_rate", "user 'alice' cannot have the quota 'connection_creation_rate'"),
        (ADDRESS, "request_percentage", "ip '192.0.2.1' cannot have the quota 'request_percentage'"),
        (APP, "colour_rate", "use consumer_byte_rate"),
        (APP, "", "cannot have the quota ''"),
    ],
)
def test_quotas_that_an_entity_cannot_have_are_refused_and_can_be_removed(parts: Named, key: str, words: str) -> None:
    assert words in refusal(metadata(), alteration(parts, key, 5))
    assert written(metadata(), alteration(parts, key, None)) == []


@pytest.mark.parametrize("value", [0, -0.0, -1, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("parts", "key"),
    [(ALICE, "producer_byte_rate"), (ALICE, "request_percentage"), (ADDRESS, "connection_creation_rate")],
)
def test_quotas_are_numbers_above_0(parts: Named, key: str, value: float) -> None:
    message = refusal(metadata(), alteration(parts, key, value))
    assert f"the quota {key} of" in message and "must be a number above 0, or be removed" in message


@pytest.mark.parametrize(
    ("parts", "key", "value", "most"),
    [
        (ALICE, "producer_byte_rate", 0.5, 2**63 - 1),
        (ALICE, "consumer_byte_rate", 1000.25, 2**63 - 1),
        (ALICE, "consumer_byte_rate", 1000.00001, 2**63 - 1),
        (ALICE, "consumer_byte_rate", 2.0**63 + 2048, 2**63 - 1),
        (ADDRESS, "connection_creation_rate", 1.5, 2**31 - 1),
        (ADDRESS, "connection_creation_rate", 2.0**31, 2**31 - 1),
    ],
)
def test_rates_of_bytes_and_connections_are_whole(parts: Named, key: str, value: float, most: int) -> None:
    message = refusal(metadata(), alteration(parts, key, value))
    assert f"is {value}; it must be whole, at most {most}" in message


@pytest.mark.parametrize("second", [6.0, None])
def test_a_quota_is_altered_once(second: float | None) -> None:
    asked = (alteration(ALICE, "request_percentage", 5), alteration(ALICE, "request_percentage", second))
    assert "'request_percentage' of user 'alice' is altered more than once" in refusal(metadata(), *asked)


@pytest.mark.parametrize(
    ("parts", "key"),
    [((("user", "x" * 1001),), "request_percentage"), ((("x" * 1001, "u"),), "k"), (ALICE, "x" * 1001)],
)
def test_far_too_long_names_are_an_invalid_request_of_the_whole(parts: Named, key: str) -> None:
    with pytest.raises(ApiError, match="1001 characters") as refused:
        decided(metadata(), alteration(parts, key, 5))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_ct12_more_alterations_than_a_batch_holds_are_refused_whole() -> None:
    asked = [alteration((("user", f"u{number}"),), "request_percentage", 5) for number in range(10_001)]
    assert len(asked) == RECORDS_PER_BATCH_MAX + 1
    with pytest.raises(ApiError, match="divide it") as refused:
        decided(metadata(), *asked)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


# --- against a naive model --------------------------------------------------------------------------------------------

steps = st.tuples(
    st.sampled_from([ALICE, ANYBODY, APP, ALICES_APP, ALICES_APP[::-1]]),
    st.dictionaries(
        st.sampled_from(["producer_byte_rate", "request_percentage"]), st.sampled_from([None, 1.0, 2.0]), min_size=1
    ),
)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(steps, max_size=8))
def test_quotas_come_to_what_was_altered_last(altered: list[tuple[Named, Mapping[str, float | None]]]) -> None:
    state = metadata()
    model: dict[tuple[Named, str], float] = {}
    for parts, values in altered:
        named = tuple(sorted(parts))
        before = dict(model)
        for key, value in values.items():
            if value is None:
                model.pop((named, key), None)
            else:
                model[named, key] = value
        records, _ = decided(state, *(alteration(parts, key, value) for key, value in values.items()))
        assert len(records) == sum(model.get((named, key)) != before.get((named, key)) for key in values)
        state.commit(*(MetadataRecord(client_quota=record) for record in records))
    found = {(quota_entity_key(of.entity), of.key): of.value for of in state.all_client_quotas()}
    assert found == {(quota_entity_key(entity(parts)), key): value for (parts, key), value in model.items()}
