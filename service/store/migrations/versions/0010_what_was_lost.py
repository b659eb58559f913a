"""What a failure cost is what was lost: what is stored keeps its whole runs, and says so."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("occurrences", schema=None) as batch_op:
        batch_op.add_column(sa.Column("still", sa.Double(), nullable=False, server_default="0"))
        batch_op.add_column(sa.Column("back", sa.Double(), nullable=False, server_default="0"))
        batch_op.add_column(sa.Column("whole", sa.Boolean(), nullable=False, server_default=sa.true()))


def downgrade() -> None:
    with op.batch_alter_table("occurrences", schema=None) as batch_op:
        for name in ("whole", "back", "still"):
            batch_op.drop_column(name)
