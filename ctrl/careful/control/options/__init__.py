"""The options of `up`, and the files that hold them: careful.toml and keys."""
