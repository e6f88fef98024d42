"""How much of a broker each client may have: rates, who is under which quota, how long those wait who had too much."""
