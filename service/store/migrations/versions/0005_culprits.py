"""Nodes that a machine's fault names itself, told apart from those that a diagnosis only points at."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # What was stored before speaks against no machine by itself: nobody noted which nodes were named by the fault.
    with op.batch_alter_table("occurrence_nodes", schema=None) as batch_op:
        batch_op.add_column(sa.Column("culprit", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    with op.batch_alter_table("occurrence_nodes", schema=None) as batch_op:
        batch_op.drop_column("culprit")
