"""The protocol: pure, synchronous, deterministic. Events in, actions out; see `raft.core.replica`."""
