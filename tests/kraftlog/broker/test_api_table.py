"""Every handler has one shape, and is in the one table."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

from kraftlog.broker import apis
from kraftlog.broker.api_table import APIS, RECORD_APIS, handlers
from kraftlog.broker.apis.api_versions import ApiVersionsApi
from kraftlog.broker.dispatch import KEYS
from kraftlog.network.requests import ClientRequest, Reply
from tests.kraftlog.broker.services import services


def handler_classes() -> set[type]:
    """Those in the package of APIs, but for the one that is made of the table."""
    modules = [
        importlib.import_module(f"{apis.__name__}.{found.name}") for found in pkgutil.iter_modules(apis.__path__)
    ]
    members = [member for module in modules for _, member in inspect.getmembers(module, inspect.isclass)]
    return {one for one in members if one.__name__.endswith("Api")} - {ApiVersionsApi}


def test_every_handler_is_in_the_table_and_of_an_api_that_there_is() -> None:
    assert set(APIS.values()) == handler_classes()
    assert len(set(APIS.values())) == len(APIS)
    assert set(APIS) <= set(KEYS)
    assert RECORD_APIS.items() <= APIS.items()


@pytest.mark.parametrize("handler", sorted(handler_classes(), key=lambda one: one.__name__))
def test_every_handler_is_made_of_services_and_takes_a_request_and_a_reply(handler: type) -> None:
    assert list(inspect.signature(handler).parameters) == ["services"]
    handle = inspect.signature(handler.handle, eval_str=True)  # type: ignore[attr-defined]
    assert [one.annotation for one in handle.parameters.values()][1:] == [ClientRequest, Reply]


def test_the_handlers_of_a_table_have_its_names() -> None:
    made = handlers({"ListOffsets": RECORD_APIS["ListOffsets"]}, services())
    assert list(made) == ["ListOffsets"]
