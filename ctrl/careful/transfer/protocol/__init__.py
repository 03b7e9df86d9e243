"""The messages of the block service."""
