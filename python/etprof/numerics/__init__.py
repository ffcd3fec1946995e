"""Where a program's values part from the eager model's: taps on every operator, and the comparison."""
