"""Where the two systems differ: in an answer, in the records of a resource, or in the metadata that results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraftlog.difftest.image import Image
from kraftlog.difftest.records import Record
from kraftlog.difftest.system import Answer

NOTHING: Final = "nothing"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. `of` is "answer", "records", "image" or "placement"; `where` is the part or the resource."""

    step: int
    """The number of the step after which the difference shows, from 0."""
    of: str
    where: str
    kafka: str
    own: str
    rule: str = ""
    """The rule that documents the difference, if it is an intended deviation."""

    def to_json(self) -> dict[str, Any]:
        """Return the difference as a JSON object."""
        return {name: getattr(self, name) for name in self.__slots__}


def compare_answers(step: int, kafka: Answer, own: Answer) -> list[Difference]:
    """Compare the answers part by part."""
    return _compare(step, "answer", kafka, own)


def compare_records(step: int, kafka: Iterable[Record], own: Iterable[Record]) -> list[Difference]:
    """Compare each resource's sequence of records. The order of records of different resources does not count."""
    return _compare(step, "records", _by_resource(kafka), _by_resource(own))


def compare_images(
    step: int, kafka: Image, own: Image, kafka_before: Mapping[str, Any], own_before: Mapping[str, Any]
) -> list[Difference]:
    """Compare resource by resource. A resource that is as it was before all sequences, `..._before`, is left out."""
    return _compare(step, "image", _changed(kafka, kafka_before), _changed(own, own_before))


def _changed(image: Image, before: Mapping[str, Any]) -> dict[str, str]:
    resources = image.resources()
    gone = {name: NOTHING for name in before if name not in resources}
    return gone | {name: str(state) for name, state in resources.items() if state != before.get(name)}


def _by_resource(records: Iterable[Record]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for record in records:
        found.setdefault(record.resource, []).append(str(record))
    return {resource: "; ".join(shown) for resource, shown in found.items()}


def _compare(step: int, of: str, kafka: Mapping[str, str], own: Mapping[str, str]) -> list[Difference]:
    return [
        Difference(step, of, where, kafka.get(where, NOTHING), own.get(where, NOTHING))
        for where in sorted({**kafka, **own})
        if kafka.get(where, NOTHING) != own.get(where, NOTHING)
    ]
