"""The endpoints' own overheads and gaps (P4)."""
