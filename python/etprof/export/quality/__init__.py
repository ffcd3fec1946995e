"""What a language model's program makes of a text: read in a process of its own, and judged."""
