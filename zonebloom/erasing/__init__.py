"""Erasure of the rows of some values, from the request to the record.

=============  ==================================================================
module         what lives there
=============  ==================================================================
``erase``      the door: find, erase, refresh, check, vacuum, record
``files``      Parquet files in folders: each is replaced by one without the rows
``delta``      Delta: a merge, and a vacuum of the old files
``iceberg``    Iceberg: files written anew, and old snapshots with their files
``tables``     what both have in common: delete until no row is left
``journal``    the steps done so far, on the disk, so that a killed call can continue
``erasure``    the result, which is the record
=============  ==================================================================

Design: docs/design/erasing.md
"""

from zonebloom.erasing.erase import erase
from zonebloom.erasing.erasure import ErasedFile, Erasure

__all__ = ["ErasedFile", "Erasure", "erase"]
