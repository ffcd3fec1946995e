"""The history of measurements: a store, a gate that judges, and what trends say."""
