"""The committed records are consistent."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.model.keys import Contradiction
from kraftlog.sim.quorum.model.metadata import taken
from kraftlog.sim.quorum.observation.step import Step


class MetadataMakesSense(Invariant):
    """Every committed record is possible after those before it: nothing that does not exist is changed, nothing that
    exists is created again, and states of remote segments follow one another as allowed.

    It keeps what the others use: the metadata of the committed log in plain dictionaries. Nothing to do in a run
    without brokers.
    """

    number = 54
    title = "what is committed makes sense"
    source = "Kafka, replay of records (CT-02)"
    is_about_brokers = True

    def after_step(self, step: Step) -> None:
        """Take in what has been committed since."""
        world = self.world
        world.metadata_changes.clear()
        for batch in world.committed[len(world.metadata_log) :]:
            batch_taken = taken(batch)
            world.metadata_log.append(batch_taken)
            try:
                world.metadata_changes += world.metadata.apply(batch_taken)
            except Contradiction as contradiction:
                self.violated(str(contradiction))
