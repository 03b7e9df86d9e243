"""What is measured, in which order, and the figures that the times give."""
