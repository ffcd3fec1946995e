"""What Alembic runs: migrations on the connection that the caller opened and locked."""

from __future__ import annotations

from alembic import context

from etprof.history.schema import TableBase

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=TableBase.metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
