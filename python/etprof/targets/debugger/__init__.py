"""Counts calls of microkernels with a debugger, where no runner counts them itself."""
