"""Random histories of three brokers: whatever happens, what was committed stays, and all logs agree in the end."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kraftlog.storage.formats.batch_header import read_header
from kraftpb.v1.metadata_pb2 import MetadataRecord
from tests.effort import some
from tests.kraftlog.broker.broker_world import registration, topic
from tests.kraftlog.replicas.replication.cluster_world import A, B, C, Cluster, led_by
from tests.kraftlog.storage.builders import checkpoint
from tests.statemachine.builders import config

ON = (A, B, C)
STEPS = 60


class History:
    """Brokers are killed and cut off, metadata comes late, leaders change; all replicas stay in the ISR."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = Cluster(directory, ON)
        flushes = "true" if seed % 4 else "false"
        self.cluster.start(
            *map(registration, ON), topic("clicks"), led_by(A, 0, on=ON), config("clicks", "flush.before.ack", flushes)
        )
        self.may_lose_power = flushes == "true"
        self.leader, self.epoch, self.written = A, 0, 0
        self.down: set[int] = set()
        self.uninformed: dict[int, list[MetadataRecord]] = {number: [] for number in ON}
        self.committed: dict[int, bytes] = {}

    def run(self) -> None:
        steps = (
            self.append,
            self.append,
            self.append,
            self.elect,
            self.kill,
            self.start,
            self.cut,
            self.mend,
            self.inform,
        )
        for _ in range(STEPS):
            self.random.choice(steps)()
            self.cluster.settle(self.random.choice((0, 1, 5, 30, 600, 3_000)))
            self.note_committed()
        self.end()

    def append(self) -> None:
        if self.leader not in self.down and not self.uninformed[self.leader]:
            self.written += 1
            value = b"%d" % self.written * self.random.randrange(1, 200)
            self.cluster[self.leader].append(value, self.random.randrange(1, 4), flushes=self.random.random() < 0.7)

    def elect(self, *more: int) -> None:
        living = [number for number in ON if number not in self.down]
        if living or more:
            self.epoch += 1
            self.leader = self.random.choice([*living, *more])
            record = led_by(self.leader, self.epoch, on=ON)
            self.cluster.metadata.append([record])
            for number in living:
                self.uninformed[number].append(record)
                if self.random.random() < 0.7:
                    self.inform_one(number)

    def inform(self) -> None:
        self.inform_one(self.random.choice(ON))

    def inform_one(self, number: int) -> None:
        records, self.uninformed[number] = self.uninformed[number], []
        for record in records:
            self.cluster[number].learn([record])

    def kill(self) -> None:
        number = self.random.choice(ON)
        if number not in self.down:
            self.down.add(number)
            self.uninformed[number].clear()
            checkpoint(self.cluster[number].logs, high_watermarks=True)
            self.cluster[number].kill(loses_power=self.may_lose_power and self.random.random() < 0.5)

    def start(self) -> None:
        if self.down:
            number = self.random.choice(sorted(self.down))
            if number == self.leader:
                self.elect(number)  # as the controller does: it may have lost what it had appended in its epoch
            self.down.discard(number)
            self.cluster[number].start()

    def cut(self) -> None:
        source, target = self.random.sample(ON, 2)
        self.cluster.cut(source, target)

    def mend(self) -> None:
        self.cluster.mend()

    def note_committed(self) -> None:
        """What any replica knows to be committed is, and never was anything else."""
        for number in ON:
            if number in self.down:
                continue
            for data in self.cluster[number].batches():
                header = read_header(data)
                if header.last_offset < self.cluster[number].log().high_watermark:
                    assert self.committed.setdefault(header.base_offset, data) == data, number

    def end(self) -> None:
        while self.down:
            self.start()
        self.cluster.mend()
        for number in ON:
            self.inform_one(number)
        self.elect()
        for number in ON:
            self.inform_one(number)
        self.append()
        self.cluster[self.leader].log().flush()
        self.cluster.settle(20_000)
        self.note_committed()
        logs = [self.cluster[number].batches() for number in ON]
        assert logs[0] == logs[1] == logs[2]
        found = {read_header(data).base_offset: data for data in logs[0]}
        assert {offset: found.get(offset) for offset in self.committed} == self.committed
        assert {self.cluster[number].log().high_watermark for number in ON} == {
            read_header(logs[0][-1]).last_offset + 1
        }
        entries = {self.cluster[number].log().epochs.entries() for number in ON}
        assert len(entries) == 1


@pytest.mark.parametrize("seed", some(range(30), part=6))
def test_what_is_committed_stays_and_all_logs_agree_in_the_end(
    tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    history = History(tmp_path, seed)
    history.run()
    said = capsys.readouterr().out
    assert "committed records are truncated" not in said
    assert "Traceback" not in said
    assert history.committed
