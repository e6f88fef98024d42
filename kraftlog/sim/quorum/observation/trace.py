"""The trace of a cluster, step by step."""

from __future__ import annotations

from kraftbase.types import Offset
from kraftlog.sim.engine import trace
from kraftlog.sim.quorum.observation.node_view import Ends, NodeView
from kraftlog.sim.quorum.observation.step import Step
from raft.core.actions import Reply, Send


class StepTrace(trace.Trace[Step]):
    """One line per step and per fault."""

    def step(self, step: Step) -> None:
        """Add a step."""
        self.steps += 1
        node = step.node
        self._unhashed.append((step.now_us, node.node_id, step.label, step.ends, step.ended))
        if len(self._unhashed) >= trace.HASHED_AT_A_TIME:
            self._hash_all()
        self._add(step)

    def text_of(self, line: str | Step) -> str:
        """Return a step in columns: time, node, label, the node's state, and its actions."""
        return _text(line)


def describe(node: NodeView) -> str:
    """Return role, epoch, leader, high watermark, log end, flushed end, applied and durable end, in fixed columns."""
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
