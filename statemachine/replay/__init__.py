"""What committed records do to the metadata."""
