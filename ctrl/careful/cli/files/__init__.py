"""Commands about files and memory of other hosts."""
