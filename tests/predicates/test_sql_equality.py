"""The short way of ``column = literal`` against the parser: whatever it reads, sqlglot's tree must say too.

The words are those of the installed sqlglot, so a newer one that knows another special word fails here.
"""

from __future__ import annotations

import logging
import re

import pytest
from hypothesis import example, given, strategies as st
from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokens import Tokenizer, TokenType

from zonebloom.errors import PredicateError
from zonebloom.predicates import Equals, Predicate, col, parse_predicate
from zonebloom.predicates.sql import parse_sql
from zonebloom.predicates.sql_equality import plain_equality
from zonebloom.predicates.sql_writer import as_sql


def words_of_the_parser() -> list[str]:
    """All names that mean anything to sqlglot: keywords, functions, types, clauses, and the words of phrases."""
    tables = [table for table in vars(Parser).values() if isinstance(table, dict)]
    words = {*Tokenizer.KEYWORDS, *(word for table in tables for word in table if isinstance(word, str))}
    words |= {kind.name for kind in TokenType} | {*exp.FUNCTION_BY_NAME, *dir(exp)}
    pieces = {piece.lower() for phrase in words for piece in (phrase, *phrase.split())}
    return sorted(piece for piece in pieces if re.fullmatch(r"[a-z_]\w*", piece, re.ASCII))


WORDS = words_of_the_parser()


@pytest.fixture(autouse=True)
def quiet():
    """sqlglot warns of words that begin a statement."""
    logging.getLogger("sqlglot").setLevel(logging.ERROR)


def parsed(text: str) -> Predicate | None:
    try:
        return parse_sql(text)
    except PredicateError:
        return None


def test_the_commonest_conditions_take_the_short_way():
    assert plain_equality("user_id = 'u-1'") == Equals("user_id", "u-1")
    assert plain_equality("key=17") == Equals("key", 17)
    assert plain_equality("  Key = -17 ") == Equals("Key", -17)
    assert parse_predicate("key = 17") == Equals("key", 17)


def test_the_text_of_a_condition_is_read_as_that_condition_whatever_the_name():
    for name in WORDS:
        column = col(name)
        for condition in (column == 1, column < 1, column.is_null(), column.isin([1]), column < col("x")):
            assert parse_predicate(as_sql(condition)) == condition, name


@pytest.mark.parametrize("literal", ["17", "-17", "'x'"])
def test_a_name_that_means_something_to_the_parser_is_left_to_it(literal):
    assert len(WORDS) > 1500
    num_short = 0
    for name in WORDS:
        for condition in (f"{name} = {literal}", f"{name.upper()} = {literal}"):
            plain = plain_equality(condition)
            num_short += plain is not None
            assert plain is None or plain == parsed(condition), condition
    assert num_short > 1.8 * len(WORDS)  # most words are plain names all the same


@given(
    name=st.one_of(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), st.sampled_from(WORDS)),
    value=st.one_of(
        st.integers(-(10**40), 10**40).map(str),
        st.text().map(lambda text: "'" + text.replace("'", "''") + "'"),
        st.from_regex(r"-?[0-9]{1,45}", fullmatch=True),
    ),
    gaps=st.tuples(*[st.sampled_from(["", " ", "  "])] * 4),
)
@example(name="key", value="'{{ jinja }} -- /* note */ \0\r\n'", gaps=("", "", "", ""))
@example(name="key", value="-0", gaps=("", "", "", ""))
@example(name="key", value="007", gaps=("", " ", " ", ""))
@example(name="e", value="'x'", gaps=("", "", "", ""))
def test_what_the_short_way_reads_is_what_the_parser_reads(name, value, gaps):
    condition = f"{gaps[0]}{name}{gaps[1]}={gaps[2]}{value}{gaps[3]}"
    plain = plain_equality(condition)
    assert plain is None or plain == parsed(condition)


@given(st.text(alphabet="ab_=' -\\\"`.;1x0eNé\n\t/*{}()$", max_size=16).map(lambda rest: f"a = {rest}"))
def test_the_short_way_reads_nothing_that_the_parser_refuses(condition):
    plain = plain_equality(condition)
    assert plain is None or plain == parsed(condition)
