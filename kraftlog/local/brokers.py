"""The data brokers that `kraftlog up --brokers` runs beside the nodes, each in a process of its own."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from rich.table import Table

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ConfigurationError, ErrorCode
from kraftbase.types import NodeId
from kraftlog.admin.client.client import AdminClient
from kraftlog.config.endpoints import PORT_MAX
from kraftlog.local.child import ChildProcess, ends
from kraftlog.local.cluster import own_environment
from statemachine.query.descriptions import BrokerDescription

FIRST_BROKER_ID: Final = 101
"""Above the id of every node that a local cluster can have."""

BROKERS_MAX: Final = 50

LISTENER: Final = "PLAINTEXT"
HOST: Final = "localhost"

START_TIMEOUT_SECONDS: Final = 120.0
STOP_GRACE_SECONDS: Final = 15.0
POLL_SECONDS: Final = 0.1
LOG_LINES: Final = 3


class BrokerDied(ApiError):
    """A broker's process ended by itself. The message has its last output, and the command that starts it again."""


class BrokerState(NamedTuple):
    """The registration of a broker."""

    epoch: int
    is_fenced: bool
    endpoint: Endpoint | None


def check_broker_count(count: int, first_port: int | None) -> None:
    """Raise ConfigurationError if this many brokers cannot be run, or not at ports from `first_port` on."""
    if not 0 <= count <= BROKERS_MAX:
        raise ConfigurationError(f"{count} brokers; a local cluster has from 0 to {BROKERS_MAX}")
    if first_port is not None and first_port + count - 1 > PORT_MAX:
        raise ConfigurationError(
            f"{count} brokers from port {first_port} on: the last port is {PORT_MAX}; begin at a lower one"
        )


class Places(Protocol):
    """Where brokers run: elsewhere than in this process's network."""

    def endpoint(self, node_id: NodeId, /) -> Endpoint:
        """Where a broker listens."""
        ...

    def within(self, node_id: NodeId, /, command: Sequence[str]) -> list[str]:
        """The command line that runs its command there."""
        ...


class LocalBrokers:
    """The processes of the brokers of one local cluster, for one event loop."""

    def __init__(
        self,
        client: AdminClient,
        nodes: tuple[Endpoint, ...],
        directory: Path,
        count: int,
        first_port: int | None,
        configs: Mapping[str, str] | None = None,
        places: Places | None = None,
        log_level: str = "warning",
    ) -> None:
        """Starts nothing. Each broker keeps its data in `directory`. Without a `first_port` each listens at its last
        port, or at a free one. `configs` apply to every broker. `places` are where the brokers run, if not here.
        """
        self._client = client
        self._nodes = nodes
        self._directory = directory
        self._first_port = first_port
        self._configs = configs or {}
        self._places = places
        self._log_level = log_level
        self.broker_ids = tuple(range(FIRST_BROKER_ID, FIRST_BROKER_ID + count))
        self._children: dict[int, ChildProcess] = {}
        self._epochs_before: dict[int, int] = {}
        """The epoch of a broker before its last start."""
        self._last_seen: dict[int, BrokerState] = {}
        """The registration of each broker before its last start."""

    async def start(
        self, broker_ids: Iterable[int] | None = None, on_death: Callable[[BrokerDied], None] | None = None
    ) -> None:
        """Start those (of all, if None) that do not run, and wait until each is unfenced.

        After a kill, the start waits until the session of the earlier incarnation has expired. A broker that ends is
        reported to `on_death`, as long as another one runs. Raises BrokerDied, ApiError(REQUEST_TIMED_OUT).
        """
        wanted = [broker_id for broker_id in (broker_ids or self.broker_ids) if not self.is_running(broker_id)]
        before = await self.states() if wanted else {}
        for broker_id in wanted:
            state = before.get(broker_id)
            self._epochs_before[broker_id] = -1
            if state is not None:
                self._epochs_before[broker_id] = state.epoch
                self._last_seen[broker_id] = state
            self._children[broker_id] = ChildProcess(
                self._command(broker_id, state), self.log_path(broker_id), own_environment()
            )
        waiting = set(wanted)
        deadline = asyncio.get_running_loop().time() + START_TIMEOUT_SECONDS
        while waiting:
            for broker_id in [one for one in waiting if not self._children[one].is_running]:
                if on_death is None or not any(map(self.is_running, wanted)):
                    raise self._death(broker_id)
                on_death(self._death(broker_id))
                waiting.discard(broker_id)
                del self._children[broker_id]  # `deaths` need not report it again
            states = await self.states()
            for broker_id in [one for one in waiting if self._is_up(states.get(one), one)]:
                self._last_seen[broker_id] = states[broker_id]
                waiting.discard(broker_id)
            if waiting and asyncio.get_running_loop().time() > deadline:
                raise ApiError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"broker {min(waiting)} is not unfenced after {START_TIMEOUT_SECONDS:g} s; see"
                    f" {self.log_path(min(waiting))}",
                )
            await asyncio.sleep(POLL_SECONDS)

    async def is_up(self, broker_id: int) -> bool:
        """Whether a broker is unfenced since its last start. Raises ApiError."""
        return self._is_up((await self.states()).get(broker_id), broker_id)

    def _is_up(self, state: BrokerState | None, broker_id: int) -> bool:
        return state is not None and state.epoch != self._epochs_before.get(broker_id, -1) and not state.is_fenced

    async def stop(self, broker_ids: Iterable[int] | None = None) -> None:
        """Stop some brokers, or all: each gets SIGTERM for a controlled shutdown, and is killed if it does not end."""
        wanted = [broker_id for broker_id in (broker_ids or self.broker_ids) if self.is_running(broker_id)]
        await asyncio.gather(*(self._children[broker_id].stop(STOP_GRACE_SECONDS) for broker_id in wanted))

    def send_signal(self, broker_id: int, number: signal.Signals) -> None:
        """Send a broker's process a signal, such as SIGSTOP and SIGCONT."""
        self._children[broker_id].send_signal(number)

    async def kill(self, broker_id: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a broker's process a signal that ends it, and wait for its end."""
        await self._children[broker_id].end(number)

    async def endpoint(self, broker_id: int) -> Endpoint:
        """Where clients reach a broker that is registered."""
        endpoint = (await self.states())[broker_id].endpoint
        if endpoint is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} has no listener {LISTENER}")
        return endpoint

    async def deaths(self) -> AsyncIterator[BrokerDied]:
        """A message for each broker that ends from now on, until all have ended."""
        async with aclosing(ends(self._children)) as ended:
            async for broker_id in ended:
                yield self._death(broker_id)

    @property
    def left_out(self) -> list[int]:
        """The ids of brokers that have a directory here, and are not among those that are run."""
        found = [path.name.removeprefix("broker-") for path in self._directory.glob("broker-*") if path.is_dir()]
        return sorted({int(name) for name in found if name.isdecimal()} - set(self.broker_ids))

    async def states(self) -> dict[int, BrokerState]:
        """The registrations of the brokers."""
        listed = await self._client.list_brokers()
        return {broker.broker_id: _state(broker) for broker in listed.brokers}

    def is_running(self, broker_id: int) -> bool:
        """Whether the broker's process runs."""
        child = self._children.get(broker_id)
        return child is not None and child.is_running

    def runs_elsewhere(self, broker_id: int, state: BrokerState | None) -> bool:
        """Whether a broker of this registration runs in a process that this program did not start."""
        if state is None or state.is_fenced or self.is_running(broker_id):
            return False
        before = self._last_seen.get(broker_id)
        return before is None or state.epoch > before.epoch

    def pid(self, broker_id: int) -> int:
        """The process id of a broker that was started."""
        return self._children[broker_id].pid

    def data_path(self, broker_id: int) -> Path:
        """Where a broker keeps everything."""
        return self._directory / f"broker-{broker_id}"

    def _command(self, broker_id: int, before: BrokerState | None) -> list[str]:
        # -P: otherwise a file in the user's working directory, such as a snapshot.py, would be imported instead of our
        # module.
        command = [
            sys.executable, "-P", "-m", "kraftlog", *self._arguments(broker_id, before),
            "--stop-at-eof", "--log-level", self._log_level,
        ]  # fmt: skip
        return command if self._places is None else self._places.within(NodeId(broker_id), command)

    def command_by_hand(self, broker_id: int) -> str:
        """The command line that runs the broker again, with its data and at its port, from any terminal."""
        return shlex.join(["kraftlog", *self._arguments(broker_id, self._last_seen.get(broker_id))])

    def _arguments(self, broker_id: int, before: BrokerState | None) -> list[str]:
        """The arguments of `kraftlog` to run the broker. `before` has its last port."""
        host = HOST
        if self._places is not None:
            host, port = self._places.endpoint(NodeId(broker_id))
        elif self._first_port is not None:
            port = self._first_port + broker_id - FIRST_BROKER_ID
        else:
            port = before.endpoint.port if before is not None and before.endpoint is not None else 0
        return [
            "brokers", "run",
            "--id", str(broker_id),
            "--bootstrap-server", ",".join(map(str, self._nodes)),
            "--endpoint", f"{LISTENER}://{host}:{port}",
            "--data-dir", str(self.data_path(broker_id).absolute()),
            *(part for name, value in self._configs.items() for part in ("--config", f"{name}={value}")),
        ]  # fmt: skip

    def log_path(self, broker_id: int) -> Path:
        """The file with a broker's log lines."""
        return self._directory / f"broker-{broker_id}.log"

    def _death(self, broker_id: int) -> BrokerDied:
        child = self._children[broker_id]
        again = f"start it again: {self.command_by_hand(broker_id)}"
        if child.exit_code is not None and child.exit_code < 0:
            message = f"broker {broker_id} was ended by {signal.Signals(-child.exit_code).name}; {again}"
        else:
            words = " / ".join(child.last_lines(LOG_LINES)) or "none"
            message = f"broker {broker_id} ended, its last words: {words}; see {self.log_path(broker_id)}; then {again}"
        return BrokerDied(ErrorCode.BROKER_NOT_AVAILABLE, message)


def _state(broker: BrokerDescription) -> BrokerState:
    endpoint = next((of for of in broker.listeners if of.name == LISTENER), None)
    return BrokerState(
        broker.broker_epoch, broker.fenced, None if endpoint is None else Endpoint(endpoint.host, endpoint.port)
    )


def add_broker_rows(table: Table, brokers: LocalBrokers, states: dict[int, BrokerState]) -> None:
    """One row per broker, below the nodes; columns that brokers lack are blank."""
    for broker_id in brokers.broker_ids:
        state = states.get(broker_id)
        address = "" if state is None or state.endpoint is None else str(state.endpoint)
        if brokers.runs_elsewhere(broker_id, state):
            role, style = "broker", None
        elif not brokers.is_running(broker_id):
            role, style = "has ended", "red"
        elif state is None or state.is_fenced:
            role, style = "fenced broker", "red"
        else:
            role, style = "broker", None
        table.add_row(str(broker_id), address, role, style=style)
