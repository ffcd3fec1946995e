"""README's commands on distributions that this machine does not run: `nox -s distros`."""
