"""What XNNPACK's operators, packed types and microkernels mean."""
