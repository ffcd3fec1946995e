"""Turns a PyTorch model into an ExecuTorch program and everything that describes it."""
