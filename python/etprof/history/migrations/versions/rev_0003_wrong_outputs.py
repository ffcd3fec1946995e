"""Whether a run's outputs are wrong; of rows from before nobody knows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column."""
    op.add_column("runs", sa.Column("wrong_outputs", sa.String()))


def downgrade() -> None:
    """Drops the column."""
    op.drop_column("runs", "wrong_outputs")
