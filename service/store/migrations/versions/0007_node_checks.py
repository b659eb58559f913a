"""What node checks said of each node; and diagnoses are counted by rule."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "node_checks",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("tested", sa.Integer(), nullable=False),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("node", "at", name=op.f("pk_node_checks")),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("node_checks", schema=None) as checks:
        checks.create_index(op.f("ix_node_checks_at"), ["at"], unique=False)
    with op.batch_alter_table("diagnoses", schema=None) as diagnoses:
        diagnoses.create_index(op.f("ix_diagnoses_rule"), ["rule"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("diagnoses", schema=None) as diagnoses:
        diagnoses.drop_index(op.f("ix_diagnoses_rule"))
    op.drop_table("node_checks")
