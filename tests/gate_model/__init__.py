"""One model in three speeds, for tests of the gate: the same name, the same outputs' shape."""
