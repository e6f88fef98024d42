"""What all worlds share: virtual time, disks and network, marks, traces, outcomes, and what runs many seeds."""
