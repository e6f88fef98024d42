"""One run from start to end: faults, convergence, and the check of everything that was acknowledged."""
