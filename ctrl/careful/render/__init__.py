"""What users see: tables, JSON, plots."""
