"""Measures a pipeline from its ends (P1 section 5.3.2), and finds its bottleneck."""
