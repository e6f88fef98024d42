"""DeleteAcls: from filters and the latest state to the entries to remove, and an answer for each filter (CT-63).

Entries are looked up by the leading fields that a filter gives: resource type, name, pattern type, and so on. A filter
that names its resource reads only that resource's entries. Other filters may read every entry: they read some at a
time, and other operations are decided in between.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.operations.lookups import about
from kraftpb.v1.admin_pb2 import AclFilterResult, DeleteAclsRequest, DeleteAclsResponse
from kraftpb.v1.metadata_pb2 import AccessControlEntryRecord, MetadataRecord, RemoveAccessControlEntryRecord
from statemachine.metadata.state import MetadataState
from statemachine.query.acls import content_prefix, matching_acls
from statemachine.tables.table import Key
from statemachine.words.limits import check_record_count
from statemachine.words.names import check_name_lengths

COMPARISONS_PER_TURN: Final = 1_000
"""Comparisons of entries with filters before other operations have their turn: some milliseconds of work."""

COMPARISONS_MAX: Final = 500_000
"""At most this many comparisons for the filters of one request, if they are several: a second or more, in turns."""


class AclDeletion:
    """The entries that the filters of one request match, found in turns and removed together at the end: `Pages`.

    An entry that several filters match is in the answer to each, and removed once. An entry that is created between two
    turns may be found or not; an entry that is deleted between two turns is in no answer.
    """

    def __init__(self, state: MetadataState, request: DeleteAclsRequest, response: DeleteAclsResponse) -> None:
        """`response` gets the answers at the end. Raises ApiError(INVALID_REQUEST) if a name is far too long."""
        self._state = state
        self._response = response
        self._filters = list(request.filters)
        self._matched: list[list[AccessControlEntryRecord]] = [[] for _ in self._filters]
        self._refused: dict[int, tuple[int, str]] = {}
        """Codes and messages; errors would hold the request, in cycles."""
        self._ids: dict[bytes, None] = {}
        together: dict[Key, list[int]] = {}
        for index, acl_filter in enumerate(self._filters):
            check_name_lengths((acl_filter.resource_name, acl_filter.principal, acl_filter.host))
            try:
                with about(f"filter {index + 1}"):
                    together.setdefault(content_prefix(acl_filter), []).append(index)
            except ApiError as error:
                self._refused[index] = error.code, error.args[0]
        self._left = deque(together.items())
        """Pending lookups: the beginning of an entry's content, and the filters that it is for."""
        self._after: Key | None = None
        self._comparisons = 0
        self._turns = 0
        self._is_appended = False

    @property
    def is_found(self) -> bool:
        """Whether everything was searched: the last `next_page` returned all."""
        return not self._left

    def next_page(self) -> list[MetadataRecord] | None:
        """Continue the search; at its end, return the records that remove the found entries, if any.

        Raises ApiError: RECORD_LIST_TOO_LARGE if more than one batch holds would be removed (CT-63),
        INVALID_REQUEST if several filters need more than `COMPARISONS_MAX` comparisons.
        """
        if self._is_appended:
            return None
        if self._left:
            self._turns += 1
        turn_end = self._comparisons + COMPARISONS_PER_TURN
        while self._left and self._comparisons < turn_end:
            self._look()
        return [] if self._left else self._removal() or None

    def appended(self) -> None:
        """The entries are removed."""
        self._is_appended = True

    def _look(self) -> None:
        prefix, indexes = self._left[0]
        limit = max(1, COMPARISONS_PER_TURN // len(indexes))
        found = self._state.acls_by_content(prefix, self._after, limit)
        self._comparisons += max(1, len(found)) * len(indexes)
        if self._comparisons > COMPARISONS_MAX and len(self._filters) > 1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{len(self._filters)} filters need more than {COMPARISONS_MAX} comparisons with the existing entries;"
                " divide the request, or name resources by type and name",
            )
        entries = [entry for _, entry in found]
        for index in indexes:
            matched = matching_acls(entries, self._filters[index])
            self._matched[index] += matched
            self._ids.update(dict.fromkeys(entry.id for entry in matched))
        check_record_count(len(self._ids))
        self._after = found[-1][0] if len(found) == limit else None
        if self._after is None:
            self._left.popleft()

    def _removal(self) -> list[MetadataRecord]:
        """The records, with the answers: entries that were removed since they were found are not removed again."""
        present = sorted(self._ids)
        if self._turns > 1:
            present = [acl_id for acl_id in present if self._state.acl_with_id(acl_id) is not None]
        removed = frozenset(present)
        del self._response.filters[:]
        for index, matched in enumerate(self._matched):
            refused = self._refused.get(index)
            if refused is not None:
                self._response.filters.add(error_code=refused[0], error_message=refused[1])
                continue
            deleted = sorted((entry for entry in matched if entry.id in removed), key=lambda entry: entry.id)
            self._response.filters.append(AclFilterResult(deleted=deleted))
        return [
            MetadataRecord(remove_access_control_entry=RemoveAccessControlEntryRecord(id=acl_id)) for acl_id in present
        ]
