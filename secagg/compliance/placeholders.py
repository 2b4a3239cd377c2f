"""Answers that say nothing: what people type into a form to get past it.

A placeholder counts as no answer. The list is short on purpose: a person who wants to say nothing
in other words can, and the report says of every answer that a person stated it.

| typed                                  | counts as                                             |
|----------------------------------------|-------------------------------------------------------|
| nothing, blanks, invisible characters  | no answer                                             |
| `-`, `...`, `?`, `/`, any punctuation  | no answer                                             |
| `xxx`, `aaaa`, `000`: one repeated     | no answer; a single digit may be a number             |
| `n/a`, `N. A.`, `TBD`, `(to do)`       | no answer, whatever case and punctuation              |
| `none`, `no`                           | no answer, but for keys where it is one: aggregators, |
|                                        | processors; `no` also for groups and tuning           |
| `not applicable yet`, `Enter text here`| no answer: all words are of those that say nothing    |
| `<permit number>`, `[...]`, `{{x}}`    | no answer: the whole is in brackets of a template     |
| the question itself                    | no answer                                             |
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection

_BLANK_LETTERS = dict.fromkeys(map(ord, "\u115f\u1160\u3164\uffa0"))  # letters that show nothing
_BRACKETED = re.compile(r"[<\[{]+[^<>\[\]{}]*[>\]}]+")
_NOTHING = frozenset((
    "na", "nil", "nix", "null", "nan", "undefined", "empty", "blank", "unknown", "notknown",
    "tbd", "tba", "tbc", "tbs", "tbf", "todo", "fixme", "wip", "pending", "open", "later", "soon",
    "tobedone", "tobedecided", "tobedetermined", "tobedefined", "tobeadded", "tobeconfirmed",
    "tobeannounced", "tobecompleted", "tobefilledin", "tobespecified", "tofollow", "tofillin",
    "fillin", "fillthisin", "filllater", "notfilledin", "notapplicable", "notavailable",
    "notspecified", "notstated", "notgiven", "notyet", "notyetknown", "noanswer", "nocomment",
    "noidea", "dontknow", "idontknow", "idk", "seeabove", "seebelow", "asabove", "ditto", "same",
    "placeholder", "yourtexthere", "texthere", "text", "string", "example", "sample", "dummy",
    "test", "testing", "foo", "bar", "foobar", "asdf", "qwerty", "abc", "abcd", "blah", "blabla",
    "blahblah", "loremipsum", "whatever", "something", "somebody", "someone", "xyz", "ka",
    "keineangabe", "folgt", "offen", "unbekannt", "entfällt", "nichtzutreffend", "nochoffen",
    "wirdnachgereicht", "sieheoben", "néant", "sansobjet", "àcompléter", "acompletar",
    "pordefinir", "dadefinire", "noaplica", "nvt", "asdfgh", "ok", "okay", "123", "1234", "12345",
))  # fmt: skip
_SAYING_NOTHING = frozenset((
    "to", "be", "determined", "decided", "defined", "added", "confirmed", "completed", "specified",
    "provided", "supplied", "filled", "in", "later", "soon", "yet", "not", "applicable", "known",
    "available", "none", "na", "n", "a", "tbd", "tba", "tbc", "todo", "follows", "pending", "at",
    "this", "time", "moment", "enter", "insert", "type", "click", "or", "tap", "your", "answer",
    "text", "here",
))  # fmt: skip
"""An answer that has no other words than these says nothing."""
NO = ("no", "nein")
NONE = (
    *NO, "none", "nobody", "noone", "nothing", "keine", "keiner", "aucun", "aucune", "ninguno",
    "ninguna", "nessuno", "nessuna", "geen", "ingen", "inget",
)  # fmt: skip


def compact(answer: str) -> str:
    """Return the letters and digits of a text in lower case."""
    folded = unicodedata.normalize("NFKC", answer).casefold().translate(_BLANK_LETTERS)
    return "".join(each for each in folded if each.isalnum())


def says_none(answer: str) -> bool:
    """Return whether an answer is that there is none."""
    return compact(answer) in NONE


def is_placeholder(answer: str, question: str = "", allowed: Collection[str] = ()) -> bool:
    """Return whether an answer says nothing.

    question: what the form asks; allowed: which of `NONE` are an answer to it
    """
    said = compact(answer)
    if said in allowed:
        return False
    repeated = len(set(said)) <= 1 and not (len(said) == 1 and said.isdigit())
    bracketed = _BRACKETED.fullmatch(unicodedata.normalize("NFKC", answer).strip())
    named = said in _NOTHING or said in NONE or said == compact(question)
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", answer).casefold())
    empty = _SAYING_NOTHING.issuperset(words)
    return repeated or named or empty or bracketed is not None
