"""What a question is worth, and how often a model was right."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.add_column(sa.Column("worth", sa.Double(), nullable=False, server_default="0"))
    op.create_table(
        "witnesses",
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("right", sa.Double(), nullable=False),
        sa.Column("wrong", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("model", "kind", name=op.f("pk_witnesses")),
    )


def downgrade() -> None:
    op.drop_table("witnesses")
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.drop_column("worth")
