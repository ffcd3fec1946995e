"""Shows what the analysis found: terminal tables, CSV and JSON with the same numbers."""
