"""A controller and its store, log and state machine, as the tests of the state machine have them."""

from __future__ import annotations

from tests.statemachine.conftest import any_bench, bench, database, held, rows, snapshots, store

__all__ = ["any_bench", "bench", "database", "held", "rows", "snapshots", "store"]
