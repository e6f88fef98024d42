"""How long a broker takes to open its logs, beside another version."""
