"""Jobs of two projects may have one name, and failure groups belong to a project."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("groups", schema=None) as batch_op:
        batch_op.add_column(sa.Column("project", sa.Text(), nullable=False, server_default="default"))
        batch_op.drop_constraint(batch_op.f("uq_groups_fingerprint"), type_="unique")
        batch_op.create_unique_constraint(batch_op.f("uq_groups_project_fingerprint"), ["project", "fingerprint"])
    # From now on the name says the project. A group of jobs of several projects stays with the default one.
    op.execute("UPDATE jobs SET name = project || '~' || name WHERE project <> 'default'")
    op.execute(
        "UPDATE groups SET project = (SELECT min(j.project) FROM occurrences o JOIN jobs j ON j.id = o.job_id "
        "WHERE o.group_id = groups.id) WHERE 1 = (SELECT count(DISTINCT j.project) FROM occurrences o "
        "JOIN jobs j ON j.id = o.job_id WHERE o.group_id = groups.id)"
    )


def downgrade() -> None:
    op.execute("UPDATE jobs SET name = substr(name, length(project) + 2) WHERE project <> 'default'")
    with op.batch_alter_table("groups", schema=None) as batch_op:
        batch_op.drop_constraint(batch_op.f("uq_groups_project_fingerprint"), type_="unique")
        batch_op.create_unique_constraint(batch_op.f("uq_groups_fingerprint"), ["fingerprint"])
        batch_op.drop_column("project")
