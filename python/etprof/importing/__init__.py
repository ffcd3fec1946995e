"""Other programs' measurements, made into run directories of what they say."""
