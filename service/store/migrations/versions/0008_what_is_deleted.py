"""What was deleted: of attempts their logs, of jobs all but what the audit trail and the groups say."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("attempts", schema=None) as attempts:
        attempts.add_column(sa.Column("lines_deleted", sa.Double(), nullable=True))
        attempts.add_column(sa.Column("raw_deleted", sa.Double(), nullable=True))
    op.create_table(
        "deletions",
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("lsn", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("done", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("job", name=op.f("pk_deletions")),
    )
    with op.batch_alter_table("deletions", schema=None) as deletions:
        deletions.create_index(op.f("ix_deletions_lsn"), ["lsn"], unique=False)


def downgrade() -> None:
    op.drop_table("deletions")
    with op.batch_alter_table("attempts", schema=None) as attempts:
        attempts.drop_column("raw_deleted")
        attempts.drop_column("lines_deleted")
