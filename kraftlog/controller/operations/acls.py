"""CreateAcls: from a request and the latest state to records and an answer; and which entries filters match.

Nothing changes here.

Numbers are Kafka's (AclOperation, AclPermissionType, PatternType, and its ResourceType, which is not that of configs).
"""

from __future__ import annotations

from random import Random

from kraftbase.errors import ApiError
from kraftbase.ids import random_id
from kraftlog.controller.operations.lookups import about
from kraftpb.v1.admin_pb2 import (
    AclResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from kraftpb.v1.metadata_pb2 import AccessControlEntryRecord, MetadataRecord
from statemachine.metadata.state import MetadataState
from statemachine.tables.cluster_tables import acl_content
from statemachine.tables.table import Key
from statemachine.words.acls import (
    check_acl,
)
from statemachine.words.limits import check_record_count
from statemachine.words.names import check_name_lengths, quoted

# --- CreateAcls -------------------------------------------------------------------------------------------------------


def create_acls(
    state: MetadataState, request: CreateAclsRequest, random: Random
) -> tuple[list[MetadataRecord], CreateAclsResponse]:
    """The records that create the valid entries, and an answer for each entry, in their order (CT-63).

    Each gets a random id, whatever id the request gives. An entry that already exists, or is twice in the request,
    makes no record and is answered with its id. Raises ApiError(RECORD_LIST_TOO_LARGE) if there are too many for one
    batch (CT-12), INVALID_REQUEST if a name is far too long.
    """
    check_record_count(len(request.entries))
    for entry in request.entries:
        check_name_lengths((entry.resource_name, entry.principal, entry.host))
    ids: dict[Key, bytes] = {}
    """Of the entries that the request creates, by their content."""
    records: list[MetadataRecord] = []
    response = CreateAclsResponse()
    for entry in request.entries:
        try:
            with about(f"the entry for {quoted(entry.principal)} on {quoted(entry.resource_name)}"):
                check_acl(entry)
        except ApiError as error:
            response.results.add(error_code=error.code, error_message=error.args[0])
            continue
        content, existing = acl_content(entry), state.acl_like(entry)
        if existing is not None:
            ids[content] = existing.id
        elif content not in ids:
            created = AccessControlEntryRecord()
            created.CopyFrom(entry)
            created.id = ids[content] = _new_id(state, random)
            records.append(MetadataRecord(access_control_entry=created))
        response.results.append(AclResult(id=ids[content]))
    return records, response


def _new_id(state: MetadataState, random: Random) -> bytes:
    while True:
        new_id = random_id(random)
        if state.acl_with_id(new_id) is None:
            return new_id


# --- filters ----------------------------------------------------------------------------------------------------------
