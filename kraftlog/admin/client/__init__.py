"""The end of the admin API that programs use."""
