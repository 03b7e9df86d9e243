"""Trees from one end to the other."""
