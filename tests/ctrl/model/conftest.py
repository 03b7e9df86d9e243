"""Hypothesis for this folder: no deadline (the machine is shared), the same cases every run."""

from hypothesis import settings

settings.register_profile("model", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("model")
