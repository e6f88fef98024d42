"""Which function decides on which operation."""

from __future__ import annotations

from kraftlog.controller.dispatch import DECIDE
from kraftpb.v1.admin_pb2 import Operation


def test_each_kind_of_operation_is_decided_on() -> None:
    kinds = [field.name for field in Operation.DESCRIPTOR.oneofs_by_name["operation"].fields]
    assert sorted(DECIDE) == sorted(kinds)
