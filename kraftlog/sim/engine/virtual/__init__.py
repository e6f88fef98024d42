"""Virtual time and what it passes in: the queue of events, clocks, disks, the network."""
