"""Bugs of a quorum, which its invariants must catch."""
