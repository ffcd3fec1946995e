"""The dashboard: the history's runs as pages, served on this machine or written as files."""
