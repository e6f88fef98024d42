"""What all worlds share: virtual time, disks, network, marks, traces, outcomes, and the code that runs many seeds."""
