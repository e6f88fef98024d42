"""A Raft quorum with KRaft's pull protocol: the pure core, its storage, its RPCs, and the node that joins them."""
