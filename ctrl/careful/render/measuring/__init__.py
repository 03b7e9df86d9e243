"""Output of measurements and benchmarks."""
