"""A broker's view of the cluster: lookups in the copy of the metadata that it follows."""
