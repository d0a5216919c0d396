"""The data set of an Iceberg table: which metadata is read, and when it is read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from zonebloom.formats.iceberg.errors import explained, is_of_store, pyiceberg_tables
from zonebloom.formats.iceberg.files import io_properties
from zonebloom.formats.iceberg.locations import newest_metadata, plain_location
from zonebloom.formats.iceberg.snapshot import identity_of, renew_access, snapshot_of
from zonebloom.formats.table import TableDataset, TableSnapshot
from zonebloom.formats.table_folders import CATALOG_PREFIX, METADATA_SUFFIX
from zonebloom.ground.errors import DataFileError, InvalidArgumentError, StorageError, Words, first_line
from zonebloom.stores.locations import StorageOptions

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


class IcebergDataset(TableDataset):
    """An Iceberg table."""

    def __init__(
        self,
        location: str,
        *,
        table: Table | None = None,
        metadata: str | None = None,
        catalog: str | None = None,
        name: Sequence[str] = (),
        storage_options: StorageOptions | None = None,
    ) -> None:
        super().__init__(plain_location(location))
        self._table = table
        self._owner: Catalog | None = None if table is None or catalog is None else table.catalog
        self._metadata = metadata
        self._catalog = catalog
        self._name = list(name)
        self._options = storage_options

    @classmethod
    def of_table(cls, table: Table) -> IcebergDataset:
        """The table that a `pyiceberg.table.Table` has loaded."""
        from pyiceberg.table import StaticTable  # noqa: PLC0415 - an extra; the caller has it

        if isinstance(table, StaticTable):
            return cls(table.location(), table=table, metadata=plain_location(table.metadata_location))
        return cls(table.location(), table=table, catalog=table.catalog.name, name=table.name())

    @classmethod
    def of_name(cls, name: str) -> IcebergDataset:
        """The table of a name such as ``catalog.namespace.table``, as it is now, by pyiceberg's configuration."""
        catalog, *names = name.split(".")
        if len(names) < 2 or not all(names):  # noqa: PLR2004 - a namespace and a table
            raise InvalidArgumentError("a table is named iceberg:CATALOG.NAMESPACE.TABLE", got=name)
        table = cls("", catalog=catalog, name=names).table()
        return cls(table.location(), catalog=catalog, name=names)

    @classmethod
    def of_path(cls, path: str, storage_options: StorageOptions | None) -> IcebergDataset:
        """The table of a metadata file, or of a folder."""
        return cls(path, metadata=path, storage_options=storage_options)

    @classmethod
    def from_json(cls, described: Mapping[str, Any], storage_options: StorageOptions | None) -> IcebergDataset:
        """The table that a version file describes, as it is now."""
        settings = {key: described[key] for key in ("metadata", "catalog", "name")}
        return cls(described["root"], **settings, storage_options=storage_options)

    def load(self, last: TableSnapshot | None) -> TableSnapshot:
        """The current snapshot of the loaded metadata, or of the newest metadata in the folder or the catalog."""
        table = copy(self.table())  # another thread may refresh it
        if last is not None and last.identity == identity_of(table):
            renew_access(last, table)
            return last
        described = {"metadata": self._metadata, "catalog": self._catalog, "name": self._name}
        return snapshot_of(table, {"kind": "iceberg", **described})

    def forget_object(self) -> None:
        """Load the newest version from now on, also if a `Table` was given: by its catalog."""
        self._table = None

    def table(self) -> Table:
        """The loaded table, or the one of the newest metadata in the folder or the catalog."""
        return self._table if self._table is not None else self._found()

    def _found(self) -> Table:
        if self._catalog is not None:
            return self._of_catalog(self._catalog)
        location = self._metadata or self.location
        if not location.endswith(METADATA_SUFFIX):
            location = newest_metadata(location)
        static_table = pyiceberg_tables().StaticTable
        with explained("Iceberg metadata", location):
            table: Table = static_table.from_metadata(location, io_properties(self._options))
        return table

    def _of_catalog(self, catalog: str) -> Table:
        pyiceberg_tables()
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - an extra
        from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415 - an extra

        name = ".".join(self._name)
        try:
            table: Table = (self._owner or load_catalog(catalog)).load_table(tuple(self._name))
        except NoSuchTableError as error:
            raise DataFileError(f"table {name} must be in catalog {catalog}", got="none") from error
        except Exception as error:  # catalogs' clients raise errors of any class
            if is_of_store(error):
                raise StorageError(
                    f"cannot read table {name} of catalog {catalog}: {first_line(error)}",
                    do="check that the catalog is up",
                ) from error
            message = f"pyiceberg's configuration has no catalog {catalog} for table {name}: {first_line(error)}"
            raise InvalidArgumentError(message, do=Words.CATALOG) from error
        if self.location and plain_location(table.location()).rstrip("/") != self.location.rstrip("/"):
            raise DataFileError(
                f"table {name} of catalog {catalog} must be the one at {self.location}",
                got=f"one at {plain_location(table.location())}",
                do=f"name it: {CATALOG_PREFIX}{catalog}.{name}",
            )
        return table
