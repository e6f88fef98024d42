"""The commands of the core's transcripts (how to write one: `tests.transcripts`).

    cluster voters=3 observers=1 leader=1     start them; with `leader`, elect that one and commit its leader change;
                                              with `new=1`, all directories are new and empty
    status [2]                                the state of each running replica
    log 2                                     the batches of its log
    advance 2 to election timeout             advance its clock; also fetch, check quorum, begin quorum, parked fetch
    advance 2 by 500 ms
    timer 2 fetch                             the remaining time of that timer
    pass 500 ms                               advance all clocks together, and deliver the resulting messages
    deliver                                   carry messages and flushes until there are none
    deliver 1->3                              only the messages under way there now
    deliver messages                          no flushes
    flush 1                                   only the pending flush of that disk
    drop 1->3, drop                           lose the messages under way
    cut 1 3, isolate 1, heal                  lose messages from now on, until healed
    append 1 "a" "b"                          a client's append of two records
    crash 2, restart 2                        unflushed data is lost
    kill 2                                    the same of its process: the machine is there, and refuses connections
    damage 2 from 5                           at the next start its log ends there, and it knows that it lost records;
                                              with `, end unknown` it does not know how many
    replace 2 with log to 5                   the same with an older copy of its directory, and it does not know that
    wipe 2                                    an empty, new directory
    resign 1, shut down 1
    fetch version 3 17                        the newest version of Fetch that it may use
    digest 2 at 3 aaaa                        its state machine reports a checkpoint
    snapshot 1 at 5                           it has taken one
    listener 1 at 3                           how far its listener has read
    check log start 1                         move its log start as far as it may go

A command after `quietly` shows nothing. Replicas start at different times by their own clocks, and only commands make
anything happen, so the lines of one command are in the order of cause and effect.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from kraftbase.types import Epoch, Offset
from raft.core.events import FetchVersionAllowed, ResignRequested, SnapshotsChanged, StateDigestReported
from raft.core.states import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from raft.core.types import UNKNOWN_UNTIL_OFFSET, RecoveringLog, StateDigest
from tests.raft.core import wording
from tests.raft.core.keeping import LogStarts
from tests.raft.core.stage import Broken, Stage, link

NEW_DIRECTORY = RecoveringLog(UNKNOWN_UNTIL_OFFSET, Epoch(0), "new", has_forgotten=True, may_found=True)


class Commands:
    """One file's."""

    def __init__(self) -> None:
        self._stage = Stage()
        self._log_starts = LogStarts(self._stage)
        self._commands: list[tuple[str, Callable[..., object]]] = [
            (r"cluster (.+)", self._cluster),
            (r"status ?(\d*)", self._status),
            (r"log (\d+)", self._log),
            (r"advance (\d+) to (.+) timeout", self._advance_to),
            (r"timer (\d+) (.+)", self._timer),
            (r"advance (\d+) by (\d+) ms", self._advance_by),
            (r"pass (\d+) ms", lambda duration_ms: self._stage.pass_time(int(duration_ms))),
            (r"deliver", lambda: self._stage.deliver()),
            (r"deliver messages", lambda: self._stage.deliver(lambda one: one.is_message)),
            (r"deliver (\d+)->(\d+)", self._deliver_link),
            (r"flush (\d+)", lambda node: self._stage.deliver(link(int(node), int(node)), until_quiet=False)),
            (r"drop (\d+)->(\d+)", lambda one, other: self._stage.drop(link(int(one), int(other)))),
            (r"drop", lambda: self._stage.drop(lambda one: True)),
            (r"cut (\d+) (\d+)", self._cut),
            (r"isolate (\d+)", self._isolate),
            (r"heal", lambda: self._stage.heal()),
            (r"append (\d+) (.+)", self._append),
            (r"crash (\d+)", lambda node: self._stage.crash(int(node))),
            (r"kill (\d+)", self._kill),
            (r"restart (\d+)", lambda node: self._stage.restart(int(node))),
            (r"damage (\d+) from (\d+)(, end unknown)?", self._damage),
            (r"replace (\d+) with log to (\d+)", self._replace),
            (r"wipe (\d+)", self._wipe),
            (r"resign (\d+)", self._resign),
            (r"shut down (\d+)", self._shut_down),
            (r"fetch version (\d+) (\d+)", self._fetch_version),
            (r"digest (\d+) at (\d+) (\w+)", self._digest),
            (r"snapshot (\d+) at (\d+)", self._snapshot),
            (r"listener (\d+) at (\d+)", lambda *given: self._log_starts.listen(*map(int, given))),
            (r"check log start (\d+)", lambda node: self._log_starts.check(int(node))),
        ]

    async def run(self, line: str) -> list[str]:
        """Run one command; return its lines."""
        command = line.removeprefix("quietly ")
        for pattern, execute in self._commands:
            found = re.fullmatch(pattern, command)
            if found is not None:
                execute(*found.groups())
                lines = self._stage.take_lines()
                return lines if command == line else []
        raise ValueError(f"there is no such command: {command}")

    # --- the quorum -------------------------------------------------------------------------------------------------

    def _cluster(self, given: str) -> None:
        settings = {name: int(value) for name, value in (one.split("=") for one in given.split())}
        leader = settings.pop("leader", None)
        voters, observers, is_new = (settings.pop(name, 0) for name in ("voters", "observers", "new"))
        stage = Stage(voters, observers, new_directory=NEW_DIRECTORY if is_new else None, **settings)
        self._stage, self._log_starts = stage, LogStarts(stage)
        stage.deliver()  # the first fetches, of replicas that know no leader
        if leader is not None:
            self._advance_to(str(leader), "election")
            stage.deliver()
            stage.take_lines()
            self._status("")

    def _status(self, node_id: str) -> None:
        for server in self._stage.running():
            if node_id in ("", str(server.node_id)):
                self._stage.say(server.node_id, wording.status(self._stage.replica(server.node_id)))

    def _log(self, node_id: str) -> None:
        disk = self._stage.servers[int(node_id)].disk
        batches = [batch for batch in disk.log if batch.base_offset >= disk.start.offset]
        self._stage.say(int(node_id), f"log: {wording.batches(batches) or 'empty'}")

    # --- time and the network ---------------------------------------------------------------------------------------

    def _advance_to(self, node_id: str, timer: str) -> None:
        self._stage.advance(int(node_id), self._deadline_ms(node_id, timer))

    def _timer(self, node_id: str, timer: str) -> None:
        left_ms = self._deadline_ms(node_id, timer) - self._stage.clock(int(node_id))
        self._stage.say(int(node_id), f"{timer} timeout in {left_ms} ms")

    def _deadline_ms(self, node_id: str, timer: str) -> int:
        deadline_ms: int | None = None
        match timer, self._stage.replica(int(node_id))._replica_state.state:
            case "election", (Unattached() | Prospective() | Candidate() | Resigned()) as state:
                deadline_ms = state.election_deadline_ms
            case "fetch", Follower() as state:
                deadline_ms = state.fetch_deadline_ms
            case "check quorum", Leader() as state:
                deadline_ms = state.check_quorum_deadline_ms
            case "begin quorum", Leader() as state:
                deadline_ms = state.begin_quorum_deadline_ms
            case "parked fetch", Leader() as state:
                deadline_ms = state.purgatory.next_deadline_ms
        if deadline_ms is None:
            raise ValueError(f"{node_id} has no {timer} timeout")
        return deadline_ms

    def _advance_by(self, node_id: str, duration_ms: str) -> None:
        self._stage.advance(int(node_id), self._stage.clock(int(node_id)) + int(duration_ms))

    def _deliver_link(self, sender: str, receiver: str) -> None:
        self._stage.deliver(link(int(sender), int(receiver)), until_quiet=False)

    def _cut(self, one: str, other: str) -> None:
        self._stage.cut(int(one), int(other))
        self._stage.drop(lambda pending: {pending.sender, pending.receiver} == {int(one), int(other)})

    def _isolate(self, node_id: str) -> None:
        self._stage.isolate(int(node_id))
        self._stage.drop(lambda pending: int(node_id) in (pending.sender, pending.receiver))

    # --- replicas ---------------------------------------------------------------------------------------------------

    def _append(self, node_id: str, records: str) -> None:
        self._stage.append_records(int(node_id), records, len(shlex.split(records)))

    def _kill(self, node_id: str) -> None:
        self._stage.closed.add(int(node_id))
        self._stage.crash(int(node_id))

    def _resign(self, node_id: str) -> None:
        self._stage.happen(int(node_id), ResignRequested(self._stage.replica(int(node_id)).epoch))

    def _shut_down(self, node_id: str) -> None:
        self._stage.shut_down(int(node_id))

    def _fetch_version(self, node_id: str, version: str) -> None:
        self._stage.happen(int(node_id), FetchVersionAllowed(int(version)))

    def _digest(self, node_id: str, end_offset: str, digest: str) -> None:
        self._stage.happen(int(node_id), StateDigestReported(StateDigest(Offset(int(end_offset)), digest.encode())))

    def _snapshot(self, node_id: str, end_offset: str) -> None:
        snapshot_id = self._stage.snapshot_id(int(node_id), int(end_offset))
        self._stage.servers[int(node_id)].disk.snapshots.append(snapshot_id)
        self._stage.happen(int(node_id), SnapshotsChanged(snapshot_id))

    # --- disks ------------------------------------------------------------------------------------------------------

    def _damage(self, node_id: str, end_offset: str, is_unknown: str | None) -> None:
        disk = self._stage.servers[int(node_id)].disk
        epoch = disk.election_state.epoch if disk.election_state is not None else Epoch(0)
        until = UNKNOWN_UNTIL_OFFSET if is_unknown else Offset(disk.end_offset)
        disk.recovering = RecoveringLog(until, epoch, "damage")
        disk.truncate(int(end_offset))

    def _replace(self, node_id: str, end_offset: str) -> None:
        disk = self._stage.servers[int(node_id)].disk
        disk.truncate(int(end_offset))
        self._stage.safety = Broken()
        disk.applied = self._stage.snapshot_id(int(node_id), int(end_offset))

    def _wipe(self, node_id: str) -> None:
        self._stage.wipe(int(node_id), NEW_DIRECTORY)
