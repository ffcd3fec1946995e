"""What was counted of a run's work, by operator; of rows from before nobody knows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column."""
    op.add_column("runs", sa.Column("work", sa.JSON()))


def downgrade() -> None:
    """Drops the column."""
    op.drop_column("runs", "work")
