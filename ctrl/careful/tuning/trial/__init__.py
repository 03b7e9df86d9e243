"""A/Bs of changes on live messages."""
