"""What each project may use of the service."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_BOUNDS = ("rate", "jobs", "sources", "storage", "tokens")


def upgrade() -> None:
    op.create_table(
        "quotas",
        sa.Column("project", sa.Text(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=True) for name in _BOUNDS),
        sa.PrimaryKeyConstraint("project", name=op.f("pk_quotas")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("quotas")
