"""The command `carefulctl`: parses options, calls the package once, prints text."""

import gc

# A command makes few cycles; collecting them costs a fourteenth of its start.
gc.set_threshold(100_000)
