"""Programs that use kraftlog the way its users do. Each is run by a test."""
