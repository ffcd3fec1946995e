"""Finds models: in the folders that come with etprof, in packages, and in files of the user's."""
