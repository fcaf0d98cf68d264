"""Run by alembic, on the connection and in the transaction of ``autogemm.store.schema``."""

from alembic import context

from autogemm.store.models import Base
from autogemm.store.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
