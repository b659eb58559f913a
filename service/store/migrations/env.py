"""What alembic runs: on the connection that ``migrate.upgrade`` gives."""

from __future__ import annotations

from alembic import context

from service.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
