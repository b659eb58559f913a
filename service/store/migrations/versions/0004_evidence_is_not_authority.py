"""Projects, what a token may name, and what the scheduler confirmed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("project", sa.Text(), nullable=False, server_default="default"))
        batch_op.create_index(batch_op.f("ix_jobs_project_last_seen"), ["project", "last_seen"], unique=False)
    with op.batch_alter_table("tokens", schema=None) as batch_op:
        batch_op.add_column(sa.Column("binding", sa.JSON(), nullable=True))
    with op.batch_alter_table("actions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("owner", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("subject", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("unconfirmed", sa.Text(), nullable=True))
    op.create_table(
        "speakers",
        sa.Column("attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("binding", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_speakers_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", "digest", name=op.f("pk_speakers")),
        sqlite_with_rowid=False,
    )
    # Nobody has noted who spoke of what there is: nothing is done because of it without a person's word.
    op.execute(
        "INSERT INTO speakers (attempt_id, digest, binding) "
        "SELECT id, '44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a', '{}' FROM attempts"
    )
    op.create_table(
        "confirmations",
        sa.Column("attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("confirmed", sa.Boolean(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("subject", sa.Text(), nullable=True),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.Column("accused", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_confirmations_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_confirmations")),
    )


def downgrade() -> None:
    op.drop_table("confirmations")
    op.drop_table("speakers")
    with op.batch_alter_table("actions", schema=None) as batch_op:
        batch_op.drop_column("unconfirmed")
        batch_op.drop_column("subject")
        batch_op.drop_column("owner")
    with op.batch_alter_table("tokens", schema=None) as batch_op:
        batch_op.drop_column("binding")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_jobs_project_last_seen"))
        batch_op.drop_column("project")
