"""The command `carefulctl`: options in, one call into the package, text out."""
