"""`kraftlog chaos damage`: one file of a stopped broker is damaged; what is served after a start is compared."""
