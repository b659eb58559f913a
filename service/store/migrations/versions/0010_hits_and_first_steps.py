"""How many lines each filter dropped, from which one sees what a rule is worth; and when an attempt began to train."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("attempts", schema=None) as attempts:
        attempts.add_column(sa.Column("hits", sa.JSON(), nullable=True))
        attempts.add_column(sa.Column("training_at", sa.Double(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("attempts", schema=None) as attempts:
        attempts.drop_column("training_at")
        attempts.drop_column("hits")
