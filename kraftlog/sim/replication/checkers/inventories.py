"""Compares the inventories of log directories with the logs in them (DB-89)."""

from __future__ import annotations

from collections.abc import Collection


def differences(inventory: str, noted: Collection[str], here: Collection[str]) -> list[str]:
    """Return the surplus and the missing entries of an inventory, once its broker has applied all metadata.

    `noted` are the logs in the inventory, `here` those in its directory, including damaged ones. If the disk was full,
    an inventory may have surplus entries until the next start.
    """
    compared = (("still has", {*noted} - {*here}), ("lacks", {*here} - {*noted}))
    return [f"{inventory} {text} {', '.join(sorted(names))}" for text, names in compared if names]
