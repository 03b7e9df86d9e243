"""The running carefuld: its socket, and the way to a peer by it."""
