"""How many lines each filter dropped: what a rule is worth is seen from that."""

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


def downgrade() -> None:
    with op.batch_alter_table("attempts", schema=None) as attempts:
        attempts.drop_column("hits")
