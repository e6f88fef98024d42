"""The committed log in plain dictionaries, written from the rules and not from the code that is checked."""
