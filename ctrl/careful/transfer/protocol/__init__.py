"""What the block service and this package say to each other, and at what pace."""
