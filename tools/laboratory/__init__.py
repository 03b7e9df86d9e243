"""What tools/lab is made of: its state, its processes, its networks, its emulated links."""
