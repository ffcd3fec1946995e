"""What a delegate means: names, classes, microkernels, SME."""
