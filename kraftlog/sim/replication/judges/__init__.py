"""What must hold of replication: rules, and judges that share no code with what they judge."""
