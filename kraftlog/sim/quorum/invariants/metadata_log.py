"""The committed records are valid."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.model.keys import Contradiction
from kraftlog.sim.quorum.model.metadata import taken
from kraftlog.sim.quorum.observation.step import Step


class MetadataMakesSense(Invariant):
    """Every committed record is possible after the records before it.

    No record changes something that does not exist, or creates something that exists, and states of remote segments
    follow one another as allowed. The invariant also keeps the metadata of the committed log in plain dictionaries,
    which other invariants use. It runs only with brokers.
    """

    number = 54
    title = "committed records are valid"
    source = "Kafka, replay of records (CT-02)"
    is_about_brokers = True

    def after_step(self, step: Step) -> None:
        """Apply the newly committed batches to the model."""
        world = self.world
        world.metadata_changes.clear()
        for batch in world.committed[len(world.metadata_log) :]:
            batch_taken = taken(batch)
            world.metadata_log.append(batch_taken)
            try:
                world.metadata_changes += world.metadata.apply(batch_taken)
            except Contradiction as contradiction:
                self.violated(str(contradiction))
