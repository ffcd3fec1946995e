"""What one experiment has that another has not."""
