"""The running carefuld: its socket, and the route to a peer through it."""
