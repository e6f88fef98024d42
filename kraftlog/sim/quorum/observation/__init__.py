"""What the checkers may look at: nodes, brokers, disks, and what a step did."""
