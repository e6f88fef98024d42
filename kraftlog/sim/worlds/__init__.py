"""What worlds without a quorum have in common: outcomes of runs, sweeps, shrinking, and the command."""
