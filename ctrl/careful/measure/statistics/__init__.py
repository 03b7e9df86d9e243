"""Arithmetic of samples: lines, intervals, locations. Pure; knows no network."""
