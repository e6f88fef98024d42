"""What happened, step by step: the last lines for users, and a hash over all of it to distinguish runs."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import Final

from kraftbase.types import Offset
from kraftlog.sim.observation.node_view import Ends, NodeView
from kraftlog.sim.observation.step import Step
from raft.core.actions import Reply, Send

LINES_KEPT: Final = 200

HASHED_AT_A_TIME: Final = 1_000


class Trace:
    """One line per step and per fault. A line is made when it is read: most never are."""

    def __init__(self, *, echo: bool = False) -> None:
        """`echo`: print every line as it comes."""
        self._echo = echo
        self._lines: deque[str | Step] = deque(maxlen=LINES_KEPT)
        self._hash = blake2b(digest_size=16)
        self._unhashed: list[object] = []
        self.steps = 0

    def step(self, step: Step) -> None:
        """Note a step."""
        self.steps += 1
        node = step.node
        self._unhashed.append((step.now_us, node.node_id, step.label, step.ends, step.ended))
        if len(self._unhashed) >= HASHED_AT_A_TIME:
            self._hash_all()
        self._add(step)

    def note(self, now_us: int, text: str) -> None:
        """Note something that is no step of a node."""
        line = f"{now_us:>12}     {text}"
        self._unhashed.append(line)
        self._add(line)

    def _hash_all(self) -> None:
        self._hash.update("".join(map(repr, self._unhashed)).encode())
        self._unhashed.clear()

    def _add(self, line: str | Step) -> None:
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
    return _columns(node.ends())


def _columns(ends: Ends | Offset) -> str:
    if isinstance(ends, int):
        return f"{'down':<11} {'':>36} D{ends:<5}"
    role, epoch, leader_id, high_watermark, log_end, flushed_end, applied, durable_end = ends
    leader = "-" if leader_id is None else leader_id
    offsets = f"H{high_watermark:<5} O{log_end:<5} F{flushed_end:<5}"
    return f"{role:<11} E{epoch:<4} L{leader:<3} {offsets} A{applied:<5} D{durable_end:<5}"


def _text(line: str | Step) -> str:
    if isinstance(line, str):
        return line
    who = f"{line.now_us:>12} {line.node.node_id:>3} {line.label:<26.26}"
    return f"{who} {_columns(line.ends)} {line.ended} {_actions(line)}"


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
