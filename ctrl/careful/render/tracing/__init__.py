"""Output of traces and captures."""
