"""One file from one end to the other."""
