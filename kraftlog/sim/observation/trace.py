"""What happened, step by step: the last lines for people, and a hash over all of it to tell runs apart."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import Final, TypeAlias

from kraftlog.sim.observation.node_view import NodeView
from kraftlog.sim.observation.step import Step
from raft.core.actions import Reply, Send

LINES_KEPT: Final = 200

HASHED_AT_A_TIME: Final = 1_000

_Facts: TypeAlias = tuple[str, int, int | None, int, int, int, int, int]


class Trace:
    """One line per step and per fault. A line is made when it is read: most never are."""

    def __init__(self, *, echo: bool = False) -> None:
        """`echo`: print every line as it comes."""
        self._echo = echo
        self._lines: deque[str | tuple[Step, _Facts | int]] = deque(maxlen=LINES_KEPT)
        self._hash = blake2b(digest_size=16)
        self._unhashed: list[object] = []
        self.steps = 0

    def step(self, step: Step) -> None:
        """Note a step."""
        self.steps += 1
        node = step.node
        facts = _facts(node)
        self._unhashed.append((step.now_us, node.node_id, step.label, facts, step.ended))
        if len(self._unhashed) >= HASHED_AT_A_TIME:
            self._hash_all()
        self._add((step, facts))

    def note(self, now_us: int, text: str) -> None:
        """Note something that is no step of a node."""
        line = f"{now_us:>12}     {text}"
        self._unhashed.append(line)
        self._add(line)

    def _hash_all(self) -> None:
        self._hash.update("".join(map(repr, self._unhashed)).encode())
        self._unhashed.clear()

    def _add(self, line: str | tuple[Step, _Facts | int]) -> None:
        self._lines.append(line)
        if self._echo:
            print(_text(line))  # noqa: T201 (that is what it is for)

    @property
    def digest(self) -> str:
        """The same for two runs iff they went the same way."""
        self._hash_all()
        return self._hash.hexdigest()

    def last_lines(self) -> list[str]:
        """The last lines."""
        return [_text(line) for line in self._lines]


def describe(node: NodeView) -> str:
    """A node in fixed columns: role, epoch, leader, high watermark, log end, flushed end, applied, durable end."""
    return _columns(_facts(node))


def _facts(node: NodeView) -> _Facts | int:
    """What `describe` shows; of a node that is down only where its log on the disk ends."""
    replica, log = node.replica, node.log
    if replica is None or log is None:
        return node.durable_log.end_offset
    leader_id, epoch = replica.leader_and_epoch
    applied = node.applied.end_offset if node.applied is not None else -1
    ends = (replica.high_watermark, log.log_end_offset, log.flushed_end_offset)
    return (replica.role.value, epoch, leader_id, *ends, applied, node.durable_log.end_offset)


def _columns(facts: _Facts | int) -> str:
    if isinstance(facts, int):
        return f"{'down':<11} {'':>36} D{facts:<5}"
    role, epoch, leader_id, high_watermark, log_end, flushed_end, applied, durable_end = facts
    leader = "-" if leader_id is None else leader_id
    ends = f"H{high_watermark:<5} O{log_end:<5} F{flushed_end:<5}"
    return f"{role:<11} E{epoch:<4} L{leader:<3} {ends} A{applied:<5} D{durable_end:<5}"


def _text(line: str | tuple[Step, _Facts | int]) -> str:
    if isinstance(line, str):
        return line
    step, facts = line
    return (
        f"{step.now_us:>12} {step.node.node_id:>3} {step.label:<26.26} {_columns(facts)} {step.ended} {_actions(step)}"
    )


def _actions(step: Step) -> str:
    names = []
    for action in step.actions:
        match action:
            case Send(_, destination, request):
                names.append(f"Send {type(request).__name__.removesuffix('Request')} to {destination.host}")
            case Reply(_, response):
                names.append(f"Reply {type(response).__name__.removesuffix('Response')} {response.error.name}")
            case _:
                names.append(type(action).__name__)
    return ", ".join(names)
