"""State that outlives `down` and a reboot."""
