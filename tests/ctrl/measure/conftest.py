"""Hypothesis for this folder: no deadline (the machine is shared), the same cases every run."""

from hypothesis import settings

settings.register_profile("measure", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("measure")
