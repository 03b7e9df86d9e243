"""Probes and their sessions; the estimators interpret the times."""
