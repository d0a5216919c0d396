"""A condition's text taken apart: joints, leaves that a filter may judge, and slices that only Spark reads.

Spark's grammar is large, depends on settings, and changes. So what is found here is a *guess*: `conditions` has Spark
compare it with the text before it is used, and a wrong guess only prunes nothing. The texts are SQL, or what a `Column`
prints: `=(user_id, 'u-1')` on a classic session, `==(user_id, u-1)` on Spark Connect.

Spec: specs/spark.md#conditions
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Joint", "Leaf", "Part", "Word", "is_plain", "parts_of_column", "parts_of_text"]

_TOKEN = re.compile(
    r"""
      (?P<comment>--|/\*)
    | (?P<hex>[xX]'[0-9a-fA-F]*')
    | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[a-zA-Z_]*)
    | (?P<word>\w+)
    | (?P<sign><=>|==|!=|<>|<=|>=|\|\||->|=>|::|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_SPACE = re.compile(r"\s*")
_VARIABLE = "${"
"""Spark replaces `${name}` by a setting, in literals too, before it reads SQL."""
_PLAIN = re.compile(r"'[^'\\]*'|-?\d{1,19}")
_MAX_BIGINT = 2**63 - 1
"""A larger number is a decimal to Spark."""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a"}


@dataclass(frozen=True, slots=True)
class Word:
    """A literal as it is written."""

    kind: str
    """`string`, `number`, `hex`, `bool`, `null`, `date`, `timestamp`, `ltz`, `ntz`; `raw` if only its text is known."""
    text: str
    """Its slice of the condition."""
    value: str
    """The text that it stands for: of a string without quotes and escapes."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A condition that is no joint."""

    kind: str
    """`=`, `!=`, `<=>`, `in`, `not in`, `null`, `not null`, `column`, or `opaque`."""
    text: str
    """Its slice of the condition."""
    name: tuple[str, ...] = ()
    """The column that is judged: its name, or the path to a leaf of a struct."""
    words: tuple[Word, ...] = ()
    """The literals."""


@dataclass(frozen=True, slots=True)
class Joint:
    """Conditions that are joined."""

    kind: str
    """`and`, `or`, `not`."""
    parts: tuple[Part, ...]


Part: TypeAlias = Leaf | Joint


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    stop: int

    @property
    def word(self) -> str:
        """In capitals, where it may be a keyword."""
        return self.text.upper() if self.kind == "word" else ""


def is_plain(word: Word) -> bool:
    """Whether the literal reads the same under every setting of Spark: a text without escapes, an integer."""
    if _PLAIN.fullmatch(word.text) is None or _VARIABLE in word.text:
        return False
    return word.text.startswith("'") or abs(int(word.text)) <= _MAX_BIGINT


# --- SQL text ---------------------------------------------------------------------------------------------------------


def parts_of_text(text: str) -> Part:
    """The condition `text` taken apart; one opaque leaf where it holds comments or variables, or is not understood."""
    tokens = list(_tokens(text))
    if not tokens or _VARIABLE in text or any(token.kind == "comment" for token in tokens):
        return Leaf("opaque", text)
    try:
        return _any_of(text, tokens)
    except (RecursionError, IndexError):
        return Leaf("opaque", text)


def _tokens(text: str) -> Iterator[_Token]:
    position = _SPACE.match(text, 0).end()  # type: ignore[union-attr]  # matches everywhere
    while position < len(text):
        found = _TOKEN.match(text, position)
        assert found is not None  # a sign is any character
        yield _Token(found.lastgroup or "", found[0], position, found.end())
        position = _SPACE.match(text, found.end()).end()  # type: ignore[union-attr]  # as above


def _slice(text: str, tokens: Sequence[_Token]) -> str:
    return text[tokens[0].start : tokens[-1].stop]


def _any_of(text: str, tokens: Sequence[_Token]) -> Part:
    return _joined(text, tokens, "OR")


def _joined(text: str, tokens: Sequence[_Token], keyword: str) -> Part:
    pieces = _split(tokens, keyword)
    if not all(pieces):
        return Leaf("opaque", _slice(text, tokens))
    is_outer = keyword == "OR"
    parts = tuple(_joined(text, piece, "AND") if is_outer else _single(text, piece) for piece in pieces)
    return parts[0] if len(parts) == 1 else Joint(keyword.lower(), parts)


def _split(tokens: Sequence[_Token], keyword: str) -> list[Sequence[_Token]]:
    """Cut at `keyword` outside brackets and CASE, but not at the AND of a BETWEEN."""
    pieces, first, depth, betweens = [], 0, 0, 0
    for place, token in enumerate(tokens):
        if token.text in ("(", "[") or token.word == "CASE":
            depth += 1
        elif token.text in (")", "]") or token.word == "END":
            depth -= 1
        elif depth == 0 and token.word == "BETWEEN":
            betweens += 1
        elif depth == 0 and token.word == keyword == "AND" and betweens:
            betweens -= 1
        elif depth == 0 and token.word == keyword:
            pieces.append(tokens[first:place])
            first = place + 1
    return [*pieces, tokens[first:]]


def _single(text: str, tokens: Sequence[_Token]) -> Part:
    if tokens[0].word == "NOT" or tokens[0].text == "!":
        return Joint("not", (_single(text, tokens[1:]),)) if len(tokens) > 1 else Leaf("opaque", tokens[0].text)
    if tokens[0].text == "(" and _closing(tokens) == len(tokens) - 1 and len(tokens) > 2:  # noqa: PLR2004 - brackets
        return _any_of(text, tokens[1:-1])
    whole = _slice(text, tokens)
    return _leaf(text, list(tokens), whole) or Leaf("opaque", whole)


def _closing(tokens: Sequence[_Token]) -> int:
    """Where the bracket that comes first ends."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            return place
    return -1


def _leaf(text: str, tokens: list[_Token], whole: str) -> Leaf | None:
    name, rest = _name(tokens)
    if name and not rest:
        return Leaf("column", whole, name)
    if not name:
        word, rest = _word(text, tokens)
        if word is None or len(rest) < 2 or rest[0].text not in ("=", "=="):  # noqa: PLR2004 - sign and name
            return None
        name, rest = _name(rest[1:])
        return Leaf("=", whole, name, (word,)) if name and not rest else None
    words = [token.word for token in rest]
    if words in (["IS", "NULL"], ["IS", "NOT", "NULL"]):
        return Leaf("not null" if len(words) == 3 else "null", whole, name)  # noqa: PLR2004 - three words
    if rest[0].text in _COMPARED:
        word, left = _word(text, rest[1:])
        return Leaf(_COMPARED[rest[0].text], whole, name, (word,)) if word is not None and not left else None
    is_not = words[0] == "NOT"
    listed = rest[is_not:]
    if len(listed) > 2 and listed[0].word == "IN" and listed[1].text == "(" and listed[-1].text == ")":  # noqa: PLR2004
        found = _list(text, listed[2:-1])
        return None if found is None else Leaf("not in" if is_not else "in", whole, name, found)
    return None


_COMPARED = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<=>": "<=>"}
_NO_NAMES = frozenset({"NULL", "TRUE", "FALSE", "NOT", "CASE", "CAST", "EXISTS", "INTERVAL", "DATE", "TIMESTAMP"})


def _name(tokens: list[_Token]) -> tuple[tuple[str, ...], list[_Token]]:
    """The name at the start, and what follows it; () where there is none."""
    names: list[str] = []
    place = 0
    while place < len(tokens):
        token = tokens[place]
        if token.kind == "quoted":
            names.append(token.text[1:-1].replace("``", "`"))
        elif token.kind == "word" and (names or token.word not in _NO_NAMES or len(tokens) == 1):
            names.append(token.text)
        else:
            return (), tokens
        place += 1
        if place >= len(tokens) or tokens[place].text != ".":
            break
        place += 1
    following = tokens[place].kind if place < len(tokens) else ""
    return ((), tokens) if following in ("string", "hex", "quoted") else (tuple(names), tokens[place:])


_TYPED = {"DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMP_LTZ": "ltz", "TIMESTAMP_NTZ": "ntz"}


def _word(text: str, tokens: list[_Token]) -> tuple[Word | None, list[_Token]]:
    """The literal at the start, and what follows it."""
    if not tokens:
        return None, tokens
    first = tokens[0]
    if first.kind == "string":
        return Word("string", first.text, _unquoted(first.text)), tokens[1:]
    if first.kind in ("number", "hex"):
        return Word(first.kind, first.text, first.text), tokens[1:]
    if first.text == "-" and len(tokens) > 1 and tokens[1].kind == "number":
        whole = _slice(text, tokens[:2])
        return Word("number", whole, f"-{tokens[1].text}"), tokens[2:]
    if first.word in ("TRUE", "FALSE", "NULL"):
        return Word("null" if first.word == "NULL" else "bool", first.text, first.word), tokens[1:]
    if first.word in _TYPED and len(tokens) > 1 and tokens[1].kind == "string":
        return Word(_TYPED[first.word], _slice(text, tokens[:2]), _unquoted(tokens[1].text)), tokens[2:]
    return None, tokens


def _list(text: str, tokens: list[_Token]) -> tuple[Word, ...] | None:
    """The literals of an IN list."""
    found: list[Word] = []
    place = 0
    while place < len(tokens):
        word, rest = _word(text, tokens[place : place + 2])
        if word is None:
            return None
        found.append(word)
        place += len(tokens[place : place + 2]) - len(rest)
        if place < len(tokens) and tokens[place].text != ",":
            return None
        place += 1
    return tuple(found) if found and tokens[-1].text != "," else None


def _unquoted(text: str) -> str:
    body = text[1:-1].replace(text[0] * 2, text[0])
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), body, flags=re.DOTALL)


# --- what a Column prints ---------------------------------------------------------------------------------------------

_CALL = re.compile(r"(==|=|<=>|and|or|!|not|isNull|isNotNull|in)\(", re.DOTALL)
_LEAF_OF_CALL = {"==": "=", "=": "=", "<=>": "<=>", "in": "in", "isNull": "null", "isNotNull": "not null"}
_JOINTS = {"and": "and", "or": "or", "!": "not", "not": "not"}


def parts_of_column(printed: str) -> Part:
    """What `str(column)` prints, taken apart; one opaque leaf where it is not understood."""
    text = printed.removeprefix("Column<'").removesuffix("'>")
    try:
        return _part_of_call(text)
    except RecursionError:
        return Leaf("opaque", text)


def _part_of_call(text: str) -> Part:
    found = _CALL.match(text)
    if found is None or not text.endswith(")"):
        return Leaf("column", text, (text,)) if re.fullmatch(r"[\w.]+", text) else Leaf("opaque", text)
    called, inner = found[1], text[found.end() : -1]
    arguments = _arguments(inner)
    if called in _JOINTS:
        return Joint(_JOINTS[called], tuple(_part_of_call(one) for one in arguments))
    kind = _LEAF_OF_CALL[called]
    first, _, rest = inner.partition(", ")
    name = _name_of_column(first)
    if kind in ("null", "not null"):
        return Leaf(kind, text, _name_of_column(inner))
    values = [rest] if kind != "in" else arguments[1:]
    return Leaf(kind, text, name, tuple(_raw(one) for one in values)) if values else Leaf("opaque", text)


_QUOTED_NAME = re.compile(r"(?:`(?:[^`]|``)*`|\w+)(?:\.(?:`(?:[^`]|``)*`|\w+))*")


def _name_of_column(text: str) -> tuple[str, ...]:
    """Connect prints names as they were written, with backticks; classic sessions print `A b` and `s.x` bare."""
    if "`" in text and _QUOTED_NAME.fullmatch(text):
        pieces = re.findall(r"`((?:[^`]|``)*)`|(\w+)", text)
        return tuple(quoted.replace("``", "`") or bare for quoted, bare in pieces)
    is_quoted = len(text) > 1 and text[0] == text[-1] == "`"  # classic, of a name that has a backtick
    return (text[1:-1] if is_quoted else text,)


def _raw(text: str) -> Word:
    if text == "NULL":
        return Word("null", text, text)
    is_quoted = len(text) > 1 and text[0] == text[-1] == "'"
    return Word("raw", text, _unquoted(text) if is_quoted else text)


def _arguments(text: str) -> list[str]:
    """Cut at commas outside brackets and quotes."""
    pieces, first, depth, is_text, place = [], 0, 0, False, 0
    while place < len(text):
        sign = text[place]
        if is_text and sign == "\\":
            place += 1
        elif sign == "'" and (is_text or text[max(place - 2, 0) : place] in (", ", "")):
            is_text = not is_text
        elif not is_text:
            depth += (sign == "(") - (sign == ")")
            if depth == 0 and text.startswith(", ", place):
                pieces.append(text[first:place])
                first = place + 2
        place += 1
    return [*pieces, text[first:]] if text else []
