"""Watches what commands start, load, connect to and open: `nox -s sandbox`."""
