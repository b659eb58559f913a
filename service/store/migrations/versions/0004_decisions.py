"""Decisions, the life of actions, and who isolated which node."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("actions", schema=None) as actions:
        actions.add_column(sa.Column("not_before", sa.Double(), server_default="0", nullable=False))
        actions.add_column(sa.Column("claims", sa.Integer(), server_default="0", nullable=False))
        actions.add_column(sa.Column("late", sa.Boolean(), server_default=sa.false(), nullable=False))
        actions.add_column(sa.Column("notes", sa.JSON(), nullable=True))
        actions.add_column(sa.Column("reason", sa.Text(), nullable=True))
        actions.add_column(sa.Column("incident", sa.Text(), nullable=True))
        actions.add_column(sa.Column("avoid", sa.JSON(), nullable=True))
    op.create_table(
        "decisions",
        sa.Column("attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("about", sa.Double(), nullable=False),
        sa.Column("made_at", sa.Double(), nullable=False),
        sa.Column("decision", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_decisions_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_decisions")),
    )
    op.create_table(
        "isolations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("released", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_isolations")),
    )
    with op.batch_alter_table("isolations", schema=None) as isolations:
        isolations.create_index(isolations.f("ix_isolations_node_at"), ["node", "at"], unique=False)
        isolations.create_index(isolations.f("ix_isolations_released"), ["released"], unique=False)


def downgrade() -> None:
    op.drop_table("isolations")
    op.drop_table("decisions")
    with op.batch_alter_table("actions", schema=None) as actions:
        for name in ("avoid", "incident", "reason", "notes", "late", "claims", "not_before"):
            actions.drop_column(name)
