"""Messages between two nodes, and the faults that change them."""
