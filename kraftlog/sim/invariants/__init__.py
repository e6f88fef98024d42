"""The invariants: one module each, checked after every step of the simulation.

Each class says what it holds, from where it is, and where it may cry wolf. `ALL` in `kraftlog.sim.invariants.catalogue`
lists them in the order in which they run.
"""
