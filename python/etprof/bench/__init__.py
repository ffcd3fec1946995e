"""Matrix runs: many models, precisions, backends and devices, each into the history."""
