"""Commands about interfaces, instances and hosts."""
