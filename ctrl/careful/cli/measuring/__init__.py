"""Commands that measure, trace, plan and tune."""
