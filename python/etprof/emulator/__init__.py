"""Finds, fetches and builds what runs Arm programs with SME2 on any machine."""
