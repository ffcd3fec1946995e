"""Every table that anyone sees, declared once: column, dtype, unit, meaning, whether it is a time."""
