"""Commands about snapshots and directories on a disk."""
