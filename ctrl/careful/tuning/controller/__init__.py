"""Decides when to measure and what to change, path by path."""
