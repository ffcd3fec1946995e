"""Exact facts of a run, of which older rows know nothing; alarms, and runs that were accepted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column and the tables."""
    op.add_column("runs", sa.Column("exact_facts", sa.JSON()))
    op.create_table(
        "acceptances",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("accepted_at", sa.DateTime(), nullable=False),
        sa.Column("accepted_by", sa.String(), nullable=False),
        sa.Column("why", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name="fk_acceptances_run_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", name="pk_acceptances"),
    )
    op.create_table(
        "alarms",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("raised_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name="fk_alarms_run_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "metric", name="pk_alarms"),
    )


def downgrade() -> None:
    """Drops all of it."""
    op.drop_table("alarms")
    op.drop_table("acceptances")
    op.drop_column("runs", "exact_facts")
