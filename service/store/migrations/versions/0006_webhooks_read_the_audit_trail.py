"""How far each webhook has read the audit trail, and why it was switched off."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("webhooks", schema=None) as webhooks:
        webhooks.add_column(sa.Column("cursor", sa.BigInteger(), server_default="0", nullable=False))
        webhooks.add_column(sa.Column("off_because", sa.Text(), nullable=True))
    with op.batch_alter_table("deliveries", schema=None) as deliveries:
        deliveries.create_index(op.f("ix_deliveries_webhook_id_state"), ["webhook_id", "state", "id"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("deliveries", schema=None) as deliveries:
        deliveries.drop_index(op.f("ix_deliveries_webhook_id_state"))
    with op.batch_alter_table("webhooks", schema=None) as webhooks:
        webhooks.drop_column("off_because")
        webhooks.drop_column("cursor")
