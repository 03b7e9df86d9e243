"""Running instances: finds them, and reads their maps and counters."""
