"""Where the time of one experiment goes."""
