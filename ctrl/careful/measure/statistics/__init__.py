"""Statistics of samples: lines, intervals, locations."""
