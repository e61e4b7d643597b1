"""What Alembic runs for every upgrade: the revisions, on the connection that `backupd.catalogue.schema` hands over.

That connection is in a transaction already and has foreign keys off: a batch migration drops the table that it
replaces, and with foreign keys on that fails or takes the rows of other tables along.
"""

from alembic import context

from backupd.catalogue import tables

context.configure(
    connection=context.config.attributes["connection"], target_metadata=tables.metadata, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
