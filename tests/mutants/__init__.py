"""Single changes of the package that a test must notice; `nox -s mutants` tries each."""
