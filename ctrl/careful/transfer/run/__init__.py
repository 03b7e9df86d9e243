"""The operations of a program: get, put, verify, list and clear partial files."""
