"""Probes and their sessions; other folders interpret the times."""
