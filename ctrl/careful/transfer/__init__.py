"""Files over the block service of a running carefuld."""
