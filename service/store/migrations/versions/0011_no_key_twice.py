"""The key of what was deleted is not given to what comes next: whoever holds on to it would act on another job."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_TABLES = ("jobs", "attempts", "actions", "webhooks")


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":  # PostgreSQL's sequences never do
        for name in _TABLES:
            with op.batch_alter_table(name, schema=None, recreate="always", table_kwargs={"sqlite_autoincrement": True}):
                pass


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for name in _TABLES:
            with op.batch_alter_table(name, schema=None, recreate="always"):
                pass
