"""ETRecords, which may be a stranger's: read as data, by nothing that evaluates what they hold."""
