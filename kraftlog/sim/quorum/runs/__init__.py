"""One run from start to end: faults, convergence, and the judgement of what was promised."""
