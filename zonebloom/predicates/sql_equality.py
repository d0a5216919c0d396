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
    alter analyze and any as begin between cache call case comment commit connect_by_root copy create cross
    current_catalog current_date current_time current_timestamp current_user delete desc describe distinct drop else
    except execute explain false fetch for from glob grant having if ilike in inner insert intersect into join kill
    lateral like load localtime localtimestamp merge not notnull null on optimize or out outer partitioned_by pivot
    pragma prepare qualify regexp rename returning revoke rlike rollback select session_user set show straight_join
    tablesample then true truncate uncache union unpivot update use using vacuum when where with xor
    """.split()  # noqa: SIM905 - a list with quotes would fill a page
)
"""Words that the parser does not read as plain names; a test compares them with the parser's own list."""


def plain_equality(text: str) -> Equals | None:
    """The condition `text` if it is a name, ``=``, and a text or an integer; None if the parser must read it."""
    match = _EQUALITY.fullmatch(text)
    if match is None or match[1].lower() in SPECIAL:
        return None
    return Equals(match[1], match[3] if match[2] is None else int(match[2]))
