"""The client side of the admin API."""
