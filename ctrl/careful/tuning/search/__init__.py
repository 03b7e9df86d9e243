"""Finds the best way to send by trying, if no model says it."""
