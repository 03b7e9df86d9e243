"""Bytes in order: standard input and output, devices, ranges, null:."""
