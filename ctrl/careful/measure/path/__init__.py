"""Measures a path hop by hop, compares it with TCP, and sums it up."""
