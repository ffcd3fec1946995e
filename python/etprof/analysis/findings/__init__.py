"""Rules that turn figures into findings: what is wrong, how sure, what it is worth, what to do."""
