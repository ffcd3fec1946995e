"""Files as a stranger may hand them over, and every command that reads them.

`python -m tests.hostile` makes thousands of damaged documents of every kind, runs the subcommands
on them in worker processes, and fails when one ends in anything but a documented exit code and a
clean line. A case is a kind and a number: the same one is the same bytes again.
"""
