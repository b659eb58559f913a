"""What others found of nodes: alerts, and conditions of Kubernetes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "node_findings",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("said", sa.Text(), nullable=True),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("node", "source", "name", "at", name=op.f("pk_node_findings")),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("node_findings", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_node_findings_at"), ["at"], unique=False)


def downgrade() -> None:
    op.drop_table("node_findings")
