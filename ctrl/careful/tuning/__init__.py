"""The closed loop: measure, propose, try on live traffic, keep or undo."""
