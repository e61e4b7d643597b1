"""The words of a statement, one by one: what comes next, names with and without quotes, comments left out.

Refuses to parse SQL: whoever asks for words knows in which order they may come.
"""

import re
from typing import Final

_TOKENS: Final = re.compile(
    r"""(?P<blank>\s++ | --(?=\s|\Z)[^\n]*+ | \#[^\n]*+ | /\*(?!M?!)(?:.*?\*/|.*) | /\*M?!\d*+ | \*/)
      | (?P<quoted>`[^`]*+(?:``[^`]*+)*(?:`|\Z))
      | (?P<doubled>"[^"\\]*+(?:(?:""|\\.)[^"\\]*+)*(?:"|\\?\Z))
      | (?P<string>'[^'\\]*+(?:(?:''|\\.)[^'\\]*+)*(?:'|\\?\Z))
      | (?P<host>@[\w$.]++)
      | (?P<word>[\w$\N{REPLACEMENT CHARACTER}]++)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
END: Final = ("", "")  # what comes behind the last word

_Token = tuple[str, str]  # what it is, and its text; of a quoted name what is in the quotes
SqlName = tuple[str, str]  # schema, table


class StatementOfAnotherForm(Exception):
    """The statement is of another form."""


class StatementWords:
    """A statement, word by word, without blanks and comments."""

    def __init__(self, statement: str, schema: str, *, cut: bool) -> None:
        self._found = _TOKENS.finditer(statement)
        self._tokens: list[_Token] = []  # those that were looked at: of a long INSERT the first ones tell all
        self.read_to: int | None = 0  # where the last one ends that was looked at; None: at the end of the statement
        if cut:
            self.read_to = None
            self._tokens = [_token(found) for found in self._found if found.lastgroup != "blank"]
            self._tokens[-1:] = [("cut", "")]
        self._schema = schema
        self._at = 0

    def take(self) -> _Token:
        """The next one; empty behind the last."""
        found = self._next()
        self._at += 1
        return found

    def _next(self) -> _Token:
        while self._at >= len(self._tokens):
            found = next(self._found, None)
            if found is None:
                self.read_to = None
                return END
            if found.lastgroup != "blank":
                self._tokens.append(_token(found))
                self.read_to = found.end()
        return self._tokens[self._at]

    def next_is(self, *words: str) -> bool:
        """Whether one of these words comes next."""
        kind, text = self._next()
        return (kind == "word" and text.upper() in words) or (kind == "sign" and text in words)

    def passed(self, *words: str) -> bool:
        """These words came, and are behind us; none of them is where they did not all come."""
        at = self._at
        for word in words:
            if not self.next_is(word):
                self._at = at
                return False
            self._at += 1
        return True

    def pass_any(self, words: frozenset[str]) -> None:
        """Whatever comes of these words is behind us."""
        while self.next_is(*words):
            self._at += 1

    def require(self, *words: str) -> None:
        """One of these words comes."""
        if not self.next_is(*words):
            raise StatementOfAnotherForm
        self._at += 1

    def pass_until(self, *words: str) -> None:
        """One of these words, and all before it, are behind us."""
        while not self.next_is(*words):
            if self.take() == END:
                raise StatementOfAnotherForm
        self._at += 1

    def pass_variables(self) -> None:
        """MariaDB's variables for one statement are behind us, if there are any."""
        while self.passed("SET", "STATEMENT"):  # it may be another SET STATEMENT
            self.pass_until("FOR")

    def pass_account(self) -> None:
        """A user's name is behind us, with its host if it has one: without quotes that is one word with its dots."""
        self.take()
        if self._next()[0] == "host":
            self._at += 1
        elif self.passed("@"):
            self.take()
        elif self.passed("("):  # CURRENT_USER()
            self.require(")")

    def name(self) -> SqlName:
        """A table's, with its schema."""
        first = self._part()
        return (first, self._part()) if self.passed(".") else (self._schema, first)

    def schema_name(self) -> SqlName:
        """A schema's."""
        return self._part(), ""

    @property
    def next_word(self) -> _Token:
        """It is not behind us yet."""
        return self._next()

    @property
    def at_end(self) -> bool:
        """Nothing follows but a delimiter."""
        return self._next() == END or self.next_is(";")

    def _part(self) -> str:
        kind, text = self.take()
        if kind not in ("word", "quoted", "doubled") or not text:
            raise StatementOfAnotherForm
        return text


def _token(found: re.Match[str]) -> _Token:
    kind, text = found.lastgroup or "", found[0]
    if kind in ("quoted", "doubled"):
        inner = text[1:-1].replace(text[0] * 2, text[0])
        return (kind, inner) if len(text) > 1 and text.endswith(text[0]) else ("open", text)
    return kind, text
