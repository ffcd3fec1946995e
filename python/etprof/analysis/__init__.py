"""Turns ETDump events and raw latencies into answers; reads no device and prints nothing."""
