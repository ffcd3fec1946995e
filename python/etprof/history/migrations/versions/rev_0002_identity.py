"""The identity of a run's directory; rows from before have none, and are known by their facts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_COLUMNS = ("manifest_sha256", "manifest_run_id")


def upgrade() -> None:
    """Adds the columns."""
    for name in _COLUMNS:
        op.add_column("runs", sa.Column(name, sa.String()))


def downgrade() -> None:
    """Drops the columns."""
    for name in _COLUMNS:
        op.drop_column("runs", name)
