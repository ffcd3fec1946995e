"""What an export changes in a model's graph: asked for, or because a kernel would spoil it."""
