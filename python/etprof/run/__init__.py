"""The files of a run: one model each."""
