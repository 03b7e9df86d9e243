"""Output about files: transfers, listings, digests."""
