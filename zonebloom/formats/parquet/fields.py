"""Numbers of the fields of Parquet's Thrift structs, in the order of parquet.thrift."""


class FileMeta:
    """Of FileMetaData."""

    SCHEMA, NUM_ROWS, ROW_GROUPS, KEY_VALUES, CREATED_BY, COLUMN_ORDERS, ENCRYPTION = range(2, 9)


class Element:
    """Of SchemaElement."""

    TYPE, LENGTH, REPETITION, NAME, NUM_CHILDREN, CONVERTED, SCALE, PRECISION, ID, LOGICAL = range(1, 11)


class Group:
    """Of RowGroup."""

    COLUMNS, BYTES, NUM_ROWS, SORTING, FILE_OFFSET, COMPRESSED_BYTES, ORDINAL = range(1, 8)


class Chunk:
    """Of ColumnChunk; only encrypted ones have the last two."""

    FILE_PATH, FILE_OFFSET, META, OFFSET_INDEX, OFFSET_INDEX_LENGTH, COLUMN_INDEX, COLUMN_INDEX_LENGTH = range(1, 8)
    ENCRYPTION = 8, 9


class Meta:
    """Of ColumnMetaData."""

    TYPE, ENCODINGS, PATH, CODEC, NUM_VALUES, BYTES, COMPRESSED_BYTES, KEY_VALUES = range(1, 9)
    DATA_OFFSET, INDEX_OFFSET, DICTIONARY_OFFSET, STATISTICS, ENCODING_STATS = range(9, 14)
    BLOOM_OFFSET, BLOOM_LENGTH, SIZES = range(14, 17)


class Page:
    """Of PageHeader."""

    TYPE, BYTES, COMPRESSED_BYTES, CHECKSUM, DATA, INDEX, DICTIONARY, DATA_V2 = range(1, 9)
