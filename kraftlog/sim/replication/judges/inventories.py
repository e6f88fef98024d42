"""Whether the inventories of log directories have the logs that are there, and no others (DB-89)."""

from __future__ import annotations

from collections.abc import Collection


def differences(inventory: str, noted: Collection[str], here: Collection[str]) -> list[str]:
    """What an inventory has too much, or lacks, once its broker has carried out all that the metadata says.

    `noted` are the logs that it has, `here` those of its directory, also damaged ones. Where there was no room in an
    inventory it may have too much, until the next start.
    """
    compared = (("still has", {*noted} - {*here}), ("lacks", {*here} - {*noted}))
    return [f"{inventory} {text} {', '.join(sorted(names))}" for text, names in compared if names]
