"""`kraftlog difftest`: sequences from seeds, their findings, and the shortest sequence that shows a finding."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from kraftbase.errors import ApiError, ErrorCode, KraftlogError
from kraftlog.bench.figures import write_json
from kraftlog.bench.peers.installed import find_peers
from kraftlog.difftest.comparison import Difference
from kraftlog.difftest.generator import generate
from kraftlog.difftest.pair import Pair
from kraftlog.difftest.session import Outcome
from kraftlog.difftest.shrink import shrink
from kraftlog.difftest.steps import Step, from_json, to_json

SHOWN_BYTES: Final = 400


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run."""

    sequences: int
    seed: int
    length: int
    is_shrunk: bool = False
    steps: Path | None = None
    """A report whose sequences are run instead."""

    def all_sequences(self) -> list[tuple[int, list[Step]]]:
        """Return each sequence with its seed. Raises ApiError for a file that is not a report."""
        if self.steps is None:
            return [(seed, generate(seed, self.length)) for seed in range(self.seed, self.seed + self.sequences)]
        try:
            report = json.loads(self.steps.read_text(encoding="utf-8"))
            return [
                (one["seed"], [from_json(step) for step in one["steps"]]) for one in report["sequences"] if one["steps"]
            ]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"{self.steps} is not a report of kraftlog difftest --json: {error!r}"
            ) from None


async def run(installed: Path, plan: Plan, directory: Path | None, json_path: Path | None, console: Console) -> bool:
    """Run all sequences, and print and write the findings; return whether there are none that no rule explains.

    Without an installed Kafka nothing is run: the reason is printed, and the result is True.
    """
    peers = find_peers(installed)
    if peers.kafka is None:
        console.print(f"skipped: {peers.missing['Kafka']}")
        return True
    sequences = plan.all_sequences()
    results: list[dict[str, Any]] = []
    errors: Counter[str] = Counter()
    started = time.monotonic()
    with console.status("starting three controllers of each") as status:
        async with Pair(peers.kafka, directory) as pair:
            for seed, sequence in sequences:
                status.update(f"sequence {len(results) + 1} of {len(sequences)}, seed {seed}")
                try:
                    outcome = await pair.run(sequence)
                    errors.update(outcome.answers)
                    if outcome.findings and plan.is_shrunk:
                        status.update(f"seed {seed}: making the sequence shorter")
                        sequence, outcome = await _shortest(pair, sequence, outcome)
                except KraftlogError as error:
                    console.print(f"seed {seed}: not run to its end: {error}")
                    results.append({"seed": seed, "error": str(error), "steps": [to_json(step) for step in sequence]})
                    continue
                results.append(_result(seed, sequence, outcome))
                _show(seed, sequence, outcome, console)
    seconds = time.monotonic() - started
    failed = [result for result in results if "error" in result or result["findings"]]
    console.print(
        f"{len(results)} sequences, {sum(result.get('steps_done', 0) for result in results)} steps in {seconds:.0f} s;"
        f" {len(failed)} with findings; both systems were started {pair.starts} times"
    )
    write_json(
        json_path,
        {
            "kafka": peers.kafka.version,
            "sequences": results,
            "answers": dict(sorted(errors.items())),
            "seconds": round(seconds, 1),
            "starts": pair.starts,
            "disturbances": pair.disturbances,
        },
    )
    return not failed


async def _shortest(pair: Pair, sequence: Sequence[Step], outcome: Outcome) -> tuple[list[Step], Outcome]:
    """Return the shortest sequence found that shows the first finding, and its outcome."""
    first = outcome.findings[0]
    best = outcome

    async def shows(shorter: Sequence[Step]) -> bool:
        nonlocal best
        found = await pair.run(shorter)
        if not any(is_alike(first, finding) for finding in found.findings):
            return False
        best = found
        return True

    shortest = await shrink(sequence[: first.step + 1], shows)
    return shortest, best


def is_alike(one: Difference, other: Difference) -> bool:
    """Whether two differences are of the same kind: equal except for ids, epochs and the lengths of lists."""
    return _shape(one) == _shape(other)


def _shape(difference: Difference) -> tuple[str, ...]:
    if difference.of == "answer":
        errors = (difference.kafka.split()[0], difference.own.split()[0])
        return difference.of, *errors, *(("values",) if errors[0] == errors[1] else ())
    texts = (re.sub(r"\d+", "#", text) for text in (difference.where.split()[0], difference.kafka, difference.own))
    return difference.of, *(re.sub(r"\(#(, #)*,?\)", "(#)", text) for text in texts)


def _result(seed: int, sequence: Sequence[Step], outcome: Outcome) -> dict[str, Any]:
    return {
        "seed": seed,
        "steps_done": outcome.steps_done,
        "steps": [to_json(step) for step in sequence] if outcome.differences else [],
        "findings": [difference.to_json() for difference in outcome.findings],
        "deviations": [difference.to_json() for difference in outcome.differences if difference.rule],
    }


def _show(seed: int, sequence: Sequence[Step], outcome: Outcome, console: Console) -> None:
    for finding in outcome.findings:
        console.print(f"seed {seed}, step {finding.step}: {sequence[finding.step]}"[:SHOWN_BYTES])
        console.print(f"    {finding.of} {finding.where}")
        console.print(f"        Kafka: {finding.kafka}"[:SHOWN_BYTES])
        console.print(f"        kraftlog: {finding.own}"[:SHOWN_BYTES])
