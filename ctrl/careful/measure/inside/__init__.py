"""Times the stages inside hosts, from trace records (P1 section 5.3.1)."""
