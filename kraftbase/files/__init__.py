"""File systems: the port, the real one, and one in memory that loses unsynced data in a crash, as disks do."""
