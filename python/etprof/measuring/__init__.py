"""Measuring: what runs in which order, how it went, and what came back."""
