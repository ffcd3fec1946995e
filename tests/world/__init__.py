"""One simulated world: what a run measures is described once, and its truth is known."""
