"""careful: a kernel-bypass transport for networks that do not lose frames."""

__version__ = "0.1.0"
