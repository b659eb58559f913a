"""What alembic runs, in order."""
