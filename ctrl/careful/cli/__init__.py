"""The command `carefulctl`: options in, one call into the package, text out."""

import gc

# Little of what a command makes has cycles; looking for them is a fourteenth of its start.
gc.set_threshold(100_000)
