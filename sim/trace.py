"""What happened, step by step: the last lines for people, and a hash over all of it to tell runs apart."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import Final

from raft.core.actions import Reply, Send
from sim.observation import NodeView, Step

LINES_KEPT: Final = 200


class Trace:
    """One line per step and per fault."""

    def __init__(self, *, echo: bool = False) -> None:
        """`echo`: print every line as it comes."""
        self._echo = echo
        self._lines: deque[tuple[str, Step | None]] = deque(maxlen=LINES_KEPT)
        self._hash = blake2b(digest_size=16)
        self.steps = 0

    def step(self, step: Step) -> None:
        """Note a step."""
        self.steps += 1
        line = f"{step.now_us:>12} {step.node.node_id:>3} {step.label:<26.26} {describe(step.node)} {step.ended}"
        self._add(line, step)

    def say(self, now_us: int, text: str) -> None:
        """Note something that is no step of a node."""
        self._add(f"{now_us:>12}     {text}", None)

    def _add(self, line: str, step: Step | None) -> None:
        self._hash.update(line.encode())
        self._lines.append((line, step))
        if self._echo:
            print(line, _actions(step))  # noqa: T201 (that is what it is for)

    @property
    def digest(self) -> str:
        """The same for two runs iff they went the same way."""
        return self._hash.hexdigest()

    def last_lines(self) -> list[str]:
        """The last lines."""
        return [f"{line} {_actions(step)}" for line, step in self._lines]


def describe(node: NodeView) -> str:
    """A node in fixed columns: role, epoch, leader, high watermark, log end, flushed end, applied, durable end."""
    replica, log = node.replica, node.log
    if replica is None or log is None:
        return f"{'down':<11} {'':>36} D{node.durable_log.end_offset:<5}"
    leader_id, epoch = replica.leader_and_epoch
    applied = node.applied.end_offset if node.applied is not None else -1
    ends = f"H{replica.high_watermark:<5} O{log.log_end_offset:<5} F{log.flushed_end_offset:<5}"
    leader = "-" if leader_id is None else str(leader_id)
    return f"{replica.role.value:<11} E{epoch:<4} L{leader:<3} {ends} A{applied:<5} D{node.durable_log.end_offset:<5}"


def _actions(step: Step | None) -> str:
    names = []
    for action in step.actions if step is not None else ():
        match action:
            case Send(_, destination, request):
                names.append(f"Send {type(request).__name__.removesuffix('Request')} to {destination.host}")
            case Reply(_, response):
                names.append(f"Reply {type(response).__name__.removesuffix('Response')} {response.error.name}")
            case _:
                names.append(type(action).__name__)
    return ", ".join(names)
