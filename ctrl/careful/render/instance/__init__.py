"""Output about instances and hosts."""
