"""The invariants: one module each, checked after every step of the simulation.

Each class documents what must hold, its source, and its false positives. `ALL` in
`kraftlog.sim.quorum.invariants.catalogue` lists them in the order in which they run.
"""
