"""The most common condition, one column equal to one literal, without the parser.

Loading sqlglot takes a third of the command's time for a search. For each text that this module reads, `sql.parse_sql`
gives the same predicate. It reads all other texts.

Design: docs/design/conditions.md#sql.
"""

from __future__ import annotations

import re

from zonebloom.predicates.leaves import Equals

_EQUALITY = re.compile(r" *([a-z_][a-z0-9_]*) *= *(?:(-?[0-9]{1,40})|'([^'\\]*)') *", re.ASCII | re.IGNORECASE)
SPECIAL = frozenset(
    """
    alter and any as between case connect_by_root create cross current_catalog current_date current_time
    current_timestamp current_user distinct drop else except false fetch for from glob grant having if ilike in
    inner insert intersect into join lateral like localtime localtimestamp not notnull null on or out outer
    partitioned_by qualify regexp returning revoke rlike rollback select session_user straight_join tablesample then
    true uncache union using when where with xor
    """.split()  # noqa: SIM905 - a list with quotes would fill a page
)
"""Words that sqlglot, 30.0 or a newer one, does not read as plain names; a test compares them with its own list."""


def plain_equality(text: str) -> Equals | None:
    """The condition `text` if it is a name, ``=``, and a text or an integer; None if the parser must read it."""
    match = _EQUALITY.fullmatch(text)
    if match is None or match[1].lower() in SPECIAL:
        return None
    return Equals(match[1], match[3] if match[2] is None else int(match[2]))
