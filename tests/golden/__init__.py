"""Whole reports of known runs, compared with files that somebody has read.

`python -m tests.golden` writes the files again after a change that is meant; their diff is what
users will see of it.
"""
