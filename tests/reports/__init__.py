"""Models of the kinds that public reports had trouble with, each with what should come of it."""
