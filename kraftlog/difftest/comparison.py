"""Where the two systems differ: in an answer, in the records of a resource, or in what these add up to."""

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
    """One difference. `of` is "answer", "records" or "image"; `where` the part or the resource."""

    step: int
    """The number of the step after which it shows, from 0."""
    of: str
    where: str
    kafka: str
    own: str
    rule: str = ""
    """The rule that says so, if it is a deviation that is meant."""

    def to_json(self) -> dict[str, Any]:
        """As an object of JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def compare_answers(step: int, kafka: Answer, own: Answer) -> list[Difference]:
    """Part by part."""
    return _compare(step, "answer", kafka, own)


def compare_records(step: int, kafka: Iterable[Record], own: Iterable[Record]) -> list[Difference]:
    """Each resource's sequence. The order of different resources does not count."""
    return _compare(step, "records", _by_resource(kafka), _by_resource(own))


def compare_images(
    step: int, kafka: Image, own: Image, kafka_before: Mapping[str, Any], own_before: Mapping[str, Any]
) -> list[Difference]:
    """Resource by resource; what is as it was before everything, `..._before`, is left out."""
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
