"""Virtual time and the simulated environment: the event queue, clocks, disks, the network."""
