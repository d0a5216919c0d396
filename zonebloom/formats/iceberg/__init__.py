"""Iceberg tables: the files of one snapshot, without the rows that position deletes took.

`pyiceberg` reads metadata and manifests, and its FileIO opens data files in object stores.

- A `Table` is the metadata that it has loaded, until its `refresh` is called.
- The path of a metadata file is that metadata.
- `iceberg:CATALOG.NAMESPACE.TABLE` is the table as its catalog has it now.
- The folder of a table without a catalog is the newest metadata in it.
- An index of a catalog's table, opened without the table, asks the catalog of that name in pyiceberg's configuration.

================  ==============================================================
module            what lives there
================  ==============================================================
``dataset``       which metadata is read, and when it is read again
``snapshot``      the data files of its current version
``columns``       names by field id, and values of partitions
``deleted_rows``  position deletes and deletion vectors
``files``         data files, read through the FileIO of the table
``locations``     locations as paths, and the newest metadata of a folder
``errors``        errors of pyiceberg as those of zonebloom, also if it is missing
================  ==============================================================

Design: docs/design/tables.md#iceberg
"""
