"""A figure with its target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table


@dataclass(frozen=True, slots=True)
class Target:
    """A figure with its bound."""

    name: str
    measured: float
    bound: float
    unit: str
    is_minimum: bool = False
    """Whether the bound is a minimum; otherwise it is a maximum."""
    decimals: int = 1
    """How many decimals the table shows."""

    @property
    def is_met(self) -> bool:
        """Whether the target is met."""
        return self.measured >= self.bound if self.is_minimum else self.measured <= self.bound

    def as_json(self) -> dict[str, Any]:
        """Return the target for the JSON output."""
        return {
            "measured": self.measured,
            "at_least" if self.is_minimum else "at_most": self.bound,
            "unit": self.unit,
            "met": self.is_met,
        }


def targets_table(targets: Sequence[Target]) -> Table:
    """Return a table with one row for each target."""
    table = Table("", "measured", "target", "", title="Targets", title_justify="left", box=None)
    for column in table.columns[1:3]:
        column.justify = "right"
    for target in targets:
        sign = ">=" if target.is_minimum else "<="
        table.add_row(
            target.name,
            f"{target.measured:,.{target.decimals}f} {target.unit}",
            f"{sign} {target.bound:,g} {target.unit}",
            "met" if target.is_met else "missed",
        )
    return table
