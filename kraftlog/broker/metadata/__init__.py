"""What a broker knows of the cluster: a copy of the metadata that it follows, and quick ways to look things up."""
