"""Output about plans: computed, simulated, in effect."""
