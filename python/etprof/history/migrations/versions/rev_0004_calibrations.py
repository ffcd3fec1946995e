"""What devices were found to tell apart."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates the table."""
    op.create_table(
        "calibrations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("measured_at", sa.DateTime(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("pairs", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.Float()) for name in ("smallest", "smallest_low", "smallest_high")),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("run_spread", sa.Float()),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(None, "calibrations", ["device", "measured_at"])


def downgrade() -> None:
    """Drops the table."""
    op.drop_table("calibrations")
