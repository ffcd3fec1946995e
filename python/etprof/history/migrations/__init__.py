"""The store's schema, revision by revision; Alembic runs what a store does not have yet."""

HEAD = "0002"
"""The newest revision, as `versions` ends in; a test compares."""
