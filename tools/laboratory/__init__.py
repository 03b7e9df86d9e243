"""The parts of tools/lab: its state, its processes, its networks, its emulated links."""
