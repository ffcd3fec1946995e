"""The ETDump reader: bytes in, columns out, and whether its events can be so."""
