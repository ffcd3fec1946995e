"""The loop that applies rewrites to a model, holds each result to its outputs, and keeps what helps."""
