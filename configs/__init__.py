"""Measurement configs that ship with etprof: templates to fill in, examples that run."""
