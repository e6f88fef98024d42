"""Files as the project writes them: a port, the real ones, and some in memory that crash as disks do."""
