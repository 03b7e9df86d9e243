"""Output for users: tables, JSON, plots."""
