"""The bug zoo: bugs of real systems, put into the core, the log or the state machine of a simulated run.

They exist only here. An invariant must catch each one; the number of seeds that this takes measures the simulator.
"""
