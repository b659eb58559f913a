"""A group of a hundred thousand occurrences is counted from indexes alone."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("occurrences", schema=None) as occurrences:
        occurrences.create_index(op.f("ix_occurrences_group_id_job_id"), ["group_id", "job_id"], unique=False)
        occurrences.create_index(op.f("ix_occurrences_group_id_user"), ["group_id", "user"], unique=False)
    with op.batch_alter_table("occurrence_nodes", schema=None) as nodes:
        nodes.drop_index(op.f("ix_occurrence_nodes_group_id"))
        nodes.create_index(op.f("ix_occurrence_nodes_group_id_node"), ["group_id", "node", "at"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("occurrence_nodes", schema=None) as nodes:
        nodes.drop_index(op.f("ix_occurrence_nodes_group_id_node"))
        nodes.create_index(op.f("ix_occurrence_nodes_group_id"), ["group_id"], unique=False)
    with op.batch_alter_table("occurrences", schema=None) as occurrences:
        occurrences.drop_index(op.f("ix_occurrences_group_id_user"))
        occurrences.drop_index(op.f("ix_occurrences_group_id_job_id"))
