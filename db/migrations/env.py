"""Run by alembic, in the transaction of ``autogemm.store.connection.schema``."""

from alembic import context

from autogemm.store.connection.schema import VERSION_TABLE
from autogemm.store.tables.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
