"""Conditions nested deeper than the SQL parser can recurse, split at their outer AND, OR, NOT and parentheses.

sqlglot makes about 20 Python calls for each level of parentheses, so about 50 levels reach Python's recursion limit.
Here a stack holds the open groups, and sqlglot parses only pieces of a few levels.

Design: docs/design/conditions.md#sql
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError

from zonebloom.predicates.tree import And, Or, Predicate

_MAX_PARSED = 16
"""Most levels of parentheses, and most NOTs in a row, of a piece for the parser."""
_JOINTS = frozenset({TokenType.AND, TokenType.OR, TokenType.R_PAREN})


class _Group:
    """An open group: ORs of ANDs."""

    def __init__(self) -> None:
        self.ors: list[list[Predicate]] = [[]]
        self.is_negated = False

    def add(self, operand: Predicate) -> None:
        self.ors[-1].append(~operand if self.is_negated else operand)
        self.is_negated = False

    def joined(self) -> Predicate:
        ands = [And(factors) if len(factors) > 1 else factors[0] for factors in self.ors]
        return Or(ands) if len(ands) > 1 else ands[0]


class Nesting:
    """The parentheses of a condition.

    Raises
    ------
    SqlglotError
        The parentheses do not match.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._closing: dict[int, int] = {}
        self._levels: dict[int, int] = {}
        opened = [-1]
        below = [0]
        self.depth: int = 0
        nots = 0
        for place, token in enumerate(tokens):
            nots = nots + 1 if token.token_type == TokenType.NOT else 0
            self.depth = max(self.depth, nots)
            if token.token_type == TokenType.L_PAREN:
                opened.append(place)
                below.append(0)
            elif token.token_type == TokenType.R_PAREN:
                if len(opened) == 1:
                    raise SqlglotError("a parenthesis is closed that was not opened")
                start, levels = opened.pop(), below.pop() + 1
                self._closing[start], self._levels[start] = place, levels
                below[-1] = max(below[-1], levels)
        if len(opened) > 1:
            raise SqlglotError("a parenthesis is not closed")
        self.depth = max(self.depth, below[0])

    @property
    def is_parsed_whole(self) -> bool:
        """Whether the parser can take the whole condition."""
        return self.depth <= _MAX_PARSED

    def predicate(self, parsed: Callable[[Sequence[Token]], Predicate]) -> Predicate:
        """The whole condition; `parsed` reads a piece of few levels.

        Raises
        ------
        SqlglotError
            An operand is missing, or not joined to the operand before it.
        """
        opened = [_Group()]
        place, is_operand_next = 0, True
        while place < len(self._tokens) or is_operand_next:
            kind = self._kind(place)
            if is_operand_next and kind == TokenType.NOT:
                opened[-1].is_negated ^= True
            elif is_operand_next and self._is_deep_group(place):
                opened.append(_Group())
            elif is_operand_next:
                end = self._end_of_leaf(place)
                if end == place:
                    raise SqlglotError("a condition is missing")
                opened[-1].add(parsed(self._tokens[place:end]))
                place, is_operand_next = end, False
                continue
            elif kind == TokenType.R_PAREN:
                group = opened.pop()
                opened[-1].add(group.joined())
            else:
                is_operand_next = True
                if kind == TokenType.OR:
                    opened[-1].ors.append([])
            place += 1
        return opened[0].joined()

    def _kind(self, place: int) -> TokenType | None:
        return self._tokens[place].token_type if place < len(self._tokens) else None

    def _is_deep_group(self, place: int) -> bool:
        """Whether many levels of parentheses begin at `place` around a condition, not around a value."""
        if self._levels.get(place, 0) < _MAX_PARSED:
            return False
        after = self._kind(self._closing[place] + 1)
        return after is None or after in _JOINTS

    def _end_of_leaf(self, place: int) -> int:
        """The position after the operand at `place`: of an AND outside of BETWEEN, an OR, or the group's end."""
        num_betweens = 0
        while (kind := self._kind(place)) is not None:
            if kind == TokenType.AND and num_betweens:
                num_betweens -= 1
            elif kind in _JOINTS:
                break
            num_betweens += kind == TokenType.BETWEEN
            place = self._closing.get(place, place) + 1
        return place
