"""The tables of the metadata: the key, row and record of each, and the database that holds them."""
