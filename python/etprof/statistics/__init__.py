"""Arrays in, estimates and verdicts out."""
