"""What a program asks for: get, put, verify, list and clear partial files."""
