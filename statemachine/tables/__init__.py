"""The tables of the metadata: what a key, a row and a record of each look like, and the database that holds them."""
