"""What the invariants may read: nodes, brokers, disks, and what a step did."""
