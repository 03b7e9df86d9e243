"""Estimators: the plan of each measurement, and the figures that follow from the times."""
