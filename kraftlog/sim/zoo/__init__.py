"""The bug zoo: bugs that other systems really had, put into the core, the log or the state machine of a simulated run.

They exist in here only. Each must be caught by some invariant; the number of seeds that takes shows what the
simulator is worth.
"""
