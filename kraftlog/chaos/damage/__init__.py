"""`kraftlog chaos damage`: damages one file of a stopped broker, and compares what is served after a start."""
