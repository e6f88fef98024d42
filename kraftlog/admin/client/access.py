"""The admin client's calls about access control."""

from __future__ import annotations

from collections.abc import Iterable

from kraftbase.ids import id_to_text
from kraftlog.admin.client.core import ClientCore
from kraftlog.admin.client.refusals import raise_first
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import AccessControlEntryRecord
from statemachine.query.cluster_descriptions import AccessControlEntry, AccessControlFilter, DescribedAccessControl


class AccessCalls(ClientCore):
    """Access control."""

    async def create_acls(self, entries: Iterable[AccessControlEntry]) -> list[str]:
        """Create entries; returns their ids, in that order. An existing entry keeps its id. Raises ApiError for the
        first refused entry; the others are created.
        """
        request = admin_pb2.CreateAclsRequest(entries=map(_entry_to_record, entries))
        result = await self.change(admin_pb2.Operation(create_acls=request))
        raise_first(("", of.error_code, of.error_message) for of in result.create_acls.results)
        return [id_to_text(of.id) for of in result.create_acls.results]

    async def delete_acls(self, filters: Iterable[AccessControlFilter]) -> list[AccessControlEntry]:
        """Delete all entries that one of the filters matches; returns them, each once.

        Raises ApiError for the first refused filter; entries that the others match are deleted.
        """
        request = admin_pb2.DeleteAclsRequest(filters=map(_filter_to_proto, filters))
        result = await self.change(admin_pb2.Operation(delete_acls=request))
        raise_first(("", of.error_code, of.error_message) for of in result.delete_acls.filters)
        deleted = (_entry_from_record(entry) for of in result.delete_acls.filters for entry in of.deleted)
        return list(dict.fromkeys(deleted))

    async def describe_acls(
        self, wanted: AccessControlFilter | None = None, *, min_applied_end_offset: int = 0
    ) -> DescribedAccessControl:
        """The entries that the filter matches, or all. Raises ApiError."""
        request = admin_pb2.DescribeAclsRequest(filter=_filter_to_proto(wanted or AccessControlFilter()))
        response = await self.read(
            lambda stub: stub.DescribeAcls, request, min_applied_end_offset=min_applied_end_offset
        )
        return DescribedAccessControl(response.applied_end_offset, tuple(map(_entry_from_record, response.entries)))


def _entry_to_record(entry: AccessControlEntry) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
        pattern_type=entry.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )


def _entry_from_record(record: AccessControlEntryRecord) -> AccessControlEntry:
    return AccessControlEntry(
        resource_type=record.resource_type,
        resource_name=record.resource_name,
        pattern_type=record.pattern_type,
        principal=record.principal,
        host=record.host,
        operation=record.operation,
        permission_type=record.permission_type,
        acl_id=id_to_text(record.id),
    )


def _filter_to_proto(wanted: AccessControlFilter) -> admin_pb2.AclFilter:
    return admin_pb2.AclFilter(
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        pattern_type=wanted.pattern_type,
        principal=wanted.principal,
        host=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission_type,
    )
