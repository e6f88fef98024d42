"""A broker's partition logs."""
