"""Starts, changes and ends carefuld."""
