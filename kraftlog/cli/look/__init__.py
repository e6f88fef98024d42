"""Commands that show how a cluster is, and what its metadata say."""
