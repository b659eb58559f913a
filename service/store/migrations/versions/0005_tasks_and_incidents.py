"""What the agent is to do, and what it remembers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.add_column(sa.Column("workload", sa.Text(), nullable=True))
    op.create_table(
        "tasks",
        sa.Column("id", _BIG, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("attempt_id", _BIG, nullable=False),
        sa.Column("ref", sa.Text(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("changed", sa.Double(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("before", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name=op.f("fk_tasks_attempt_id_attempts"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
        sa.UniqueConstraint("kind", "attempt_id", "ref", name=op.f("uq_tasks_kind_attempt_id_ref")),
    )
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_tasks_state_id"), ["state", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_tasks_attempt_id"), ["attempt_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_tasks_ref"), ["ref"], unique=False)
    op.create_table(
        "incidents",
        sa.Column("number", _BIG, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("fields", sa.JSON(), nullable=False),
        sa.Column("embedder", sa.Text(), nullable=True),
        sa.Column("vector", sa.LargeBinary(), nullable=True),
        sa.Column("remembered", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_incidents")),
        sa.UniqueConstraint("id", name=op.f("uq_incidents_id")),
    )
    with op.batch_alter_table("incidents", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_incidents_embedder"), ["embedder"], unique=False)
    op.create_table(
        "incident_words",
        sa.Column("word", sa.Text(), nullable=False),
        sa.Column("number", _BIG, nullable=False),
        sa.ForeignKeyConstraint(
            ["number"], ["incidents.number"], name=op.f("fk_incident_words_number_incidents"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("word", "number", name=op.f("pk_incident_words")),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("incident_words", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_incident_words_number"), ["number"], unique=False)


def downgrade() -> None:
    op.drop_table("incident_words")
    op.drop_table("incidents")
    op.drop_table("tasks")
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.drop_column("workload")
