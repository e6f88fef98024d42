"""How committed records change the metadata."""
