"""What handlers work with, as far as a test has it."""

from __future__ import annotations

import dataclasses
from typing import Any, Never

from kraftlog.broker.apis.services import BrokerServices


class Missing:
    """Something that a test has not given, as it is not to be asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Never:
        raise AssertionError(f"the handler uses `{self._name}`, which the test has not given")


def services(**given: Any) -> BrokerServices:
    """Those that are given; no choice of replicas, no throttle and no creation of topics unless they are."""
    fields: dict[str, Any] = {field.name: Missing(field.name) for field in dataclasses.fields(BrokerServices)}
    return BrokerServices(**fields | {"choice": None, "throttle": None, "auto_create": None} | given)
