"""Runs, metrics, categories, raw samples and baselines."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates the tables."""
    _create_runs()
    _create_metrics()
    op.create_table(
        "categories",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("category", sa.String(), nullable=False),
        sa.Column("time_ns", sa.Float(), nullable=False),
        _run_reference(),
        sa.PrimaryKeyConstraint("run_id", "category"),
    )
    op.create_table(
        "raw_samples",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        _run_reference(),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_table(
        "baselines",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("series", sa.String(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("pinned_at", sa.DateTime(), nullable=False),
        _run_reference(),
        sa.PrimaryKeyConstraint("name", "series"),
    )


def _create_runs() -> None:
    texts = ("key", "run_name", "experiment", "status", "model", "device", "device_kind")
    maybe_texts = ("run_path", "failure", "precision", "backend", "method", "soc", "revision")
    git_texts = ("git_commit", "git_branch", "executorch_version", "variant")
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in (*texts, "sme_mode", "series")),
        *(sa.Column(name, sa.String()) for name in (*maybe_texts, *git_texts)),
        sa.Column("measured_at", sa.DateTime(), nullable=False),
        sa.Column("added_at", sa.DateTime(), nullable=False),
        sa.Column("threads", sa.Integer()),
        sa.Column("git_dirty", sa.Boolean()),
        sa.Column("pins", sa.JSON(), nullable=False),
        sa.Column("artefacts", sa.JSON(), nullable=False),
        sa.Column("representative", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
    )
    op.create_index(None, "runs", ["measured_at"])
    for column in ("series", "status", "model", "device"):
        op.create_index(None, "runs", [column, "measured_at"])


def _create_metrics() -> None:
    op.create_table(
        "metrics",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("unit", sa.String(), nullable=False),
        sa.Column("higher_is_better", sa.Boolean(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("low", sa.Float()),
        sa.Column("high", sa.Float()),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("samples", sa.LargeBinary()),
        _run_reference(),
        sa.PrimaryKeyConstraint("run_id", "name"),
    )


def _run_reference() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE")


def downgrade() -> None:
    """Drops the tables."""
    for table in ("baselines", "raw_samples", "categories", "metrics", "runs"):
        op.drop_table(table)
