"""The end of the admin API that a node has."""
