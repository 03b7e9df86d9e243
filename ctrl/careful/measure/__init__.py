"""Measurements of a path that the model can use, each figure with its interval."""
