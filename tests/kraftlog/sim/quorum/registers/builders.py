"""Registers that are right by construction, and what their clients remember: every checker must accept them."""

from dataclasses import dataclass, field
from random import Random

from kraftlog.sim.quorum.registers.history import History, Kind, Operation
from kraftlog.sim.quorum.registers.oracle import CommittedWrite


@dataclass(slots=True)
class _Client:
    client_id: int
    operation: Operation | None = None
    answer: tuple[int, str | None, bool] | None = None
    """Offset, what was found, whether it was swapped: once it took effect."""


@dataclass
class AtomicRegisters:
    """Clients of a log that takes one operation at a time. Every tick is one event of one client, or a late effect."""

    random: Random
    clients: int = 3
    keys: int = 1
    writes_tell_found: bool = True
    history: History = field(init=False)
    writes: list[CommittedWrite] = field(init=False, default_factory=list)
    end_offset: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.history = History(writes_tell_found=self.writes_tell_found)
        self._values: dict[str, str] = {}
        self._clients = [_Client(number) for number in range(self.clients)]
        self._orphans: list[Operation] = []
        self._now = 0

    def run(self, operations: int) -> None:
        """This many operations, some of them without an answer."""
        while len(self.history.operations) < operations:
            self._now += self.random.randrange(2)
            if self._orphans and self.random.random() < 0.1:
                self._take_effect(self._orphans.pop(self.random.randrange(len(self._orphans))))
            self._tick(self.random.choice(self._clients))

    def _tick(self, client: _Client) -> None:
        operation = client.operation
        if operation is None:
            client.operation = self._begin(client.client_id)
        elif self.random.random() < 0.1:
            self.history.lose_track(operation, self._now)
            if client.answer is None:
                self._orphans.append(operation)
            client.operation = client.answer = None
        elif client.answer is not None:
            offset, found, swapped = client.answer
            self.history.acknowledge(operation, self._now, offset=offset, found=found, swapped=swapped)
            client.operation = client.answer = None
        elif self.random.random() < 0.1:
            self.history.refuse(operation, self._now)
            client.operation = None
        else:
            client.answer = self._take_effect(operation)

    def _begin(self, client_id: int) -> Operation:
        kind = self.random.choice(list(Kind))
        key = f"key-{self.random.randrange(self.keys)}"
        expected = self._values.get(key) if self.random.random() < 0.7 else None
        return self.history.begin(
            client_id=client_id,
            kind=kind,
            key=key,
            value=None if kind is Kind.READ else f"value-{len(self.history.operations) + 1}",
            expected=expected if kind is Kind.COMPARE_AND_SET else None,
            invoked_at=self._now,
        )

    def _take_effect(self, operation: Operation) -> tuple[int, str | None, bool]:
        found = self._values.get(operation.key)
        offset = self.end_offset
        self.end_offset += 1
        swapped = operation.kind is Kind.COMPARE_AND_SET and found == operation.expected
        if operation.value is not None and (operation.kind is Kind.WRITE or swapped):
            self._values[operation.key] = operation.value
            self.writes.append(CommittedWrite(offset, operation.key, operation.value))
        return offset, found, swapped
