"""Decisions do not depend on when commits come: they are those of a controller that has nothing in flight."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.types import Offset
from kraftpb.v1.admin_pb2 import Operation, OperationResult
from tests.effort import examples
from tests.statemachine.builders import BROKER, alter, alteration, assigned, creatable, create, delete, register
from tests.statemachine.conftest import Bench, errors, memory_bench
from tests.statemachine.machines import wait_applied
from tests.statemachine.waiting import until

NAMES = st.sampled_from(["a", "a.b", "a_b", "c"])
VALUES = st.sampled_from([None, "1", "2"])
OPERATIONS = st.one_of(
    st.builds(create, NAMES),
    st.builds(create, NAMES, NAMES),
    st.builds(lambda name: create(creatable(name, configs={"retention.ms": "1"})), NAMES),
    st.builds(lambda name, brokers: create(assigned(name, {0: brokers})), NAMES, st.sampled_from([[1], [2], [3, 1]])),
    st.builds(delete, NAMES),
    st.builds(delete, NAMES, NAMES),
    st.builds(lambda name, value: alter(alteration(name, "retention.ms", value)), NAMES, VALUES),
    st.builds(
        lambda name, value: alter(alteration(name, "num.partitions", value, BROKER)), st.sampled_from(["", "2"]), VALUES
    ),
    st.builds(register, st.integers(1, 3), st.sampled_from([501, 502, 600])),
)
TABLES = ("topics", "partitions", "brokers", "configs")


def content(bench: Bench) -> dict[str, list[tuple[Any, ...]]]:
    return {table: bench.store.reader.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in TABLES}


async def one_by_one(path: Path, operations: list[Operation]) -> tuple[list[Any], dict[str, Any]]:
    """Each operation is committed and applied before the next one."""
    async with memory_bench(path) as bench:
        bench.log.lead()
        await bench.lead()
        results = [await bench.run(operation) for operation in operations]
        return [(errors(result), result.end_offset) for result in results], content(bench)


async def in_flight(path: Path, operations: list[Operation], commits: list[bool]) -> tuple[list[Any], dict[str, Any]]:
    """Commits come at any time, half of the time with a turn of the loop in which they may be applied."""
    async with memory_bench(path, auto_commit=False) as bench:
        bench.log.lead()
        await bench.lead()
        results: dict[int, OperationResult] = {}
        for number, operation in enumerate(operations):
            operation.correlation_id = number
            bench.controller.submit([operation], lambda result: results.update({result.correlation_id: result}))
            if commits[number % len(commits)]:
                bench.log.commit(1 + number % 2)
            if commits[(number + 1) % len(commits)]:
                await asyncio.sleep(0)
        bench.log.commit()
        await until(lambda: len(results) == len(operations))
        await wait_applied(bench.machine, Offset(0), 20_000)
        return [(errors(results[number]), results[number].end_offset) for number in range(len(operations))], content(
            bench
        )


@settings(max_examples=examples(150), deadline=None)
@given(
    operations=st.lists(OPERATIONS, min_size=1, max_size=25), commits=st.lists(st.booleans(), min_size=1, max_size=7)
)
def test_decisions_and_outcome_are_the_same_whenever_commits_come(
    operations: list[Operation], commits: list[bool]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        expected = asyncio.run(one_by_one(Path(directory) / "one.db", operations))
        assert asyncio.run(in_flight(Path(directory) / "other.db", operations, commits)) == expected
