"""The server side of the admin API."""
