"""Models that ship with etprof, one folder each."""
