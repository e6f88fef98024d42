"""Generated from proto/ by tools/generate_protocol.py. Do not edit."""
