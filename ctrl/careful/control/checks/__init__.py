"""The checks of `doctor` and `config check`."""
