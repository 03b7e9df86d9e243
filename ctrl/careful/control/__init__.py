"""Brings careful up on an interface, watches it and tunes it; never on a frame's path."""
