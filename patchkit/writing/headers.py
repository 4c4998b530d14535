"""The text of a patch file: DEP-3 head and name, in the house style.

Must not do I/O.  The head is what DEP-3 asks for, with a mail's author and subject kept.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from patchkit.patchfile import parse

#: DEP-3 fields in the order in which they are written; others follow.
_ORDER = (
    *("Description", "Origin", "Author", "Bug", "Applied-Upstream", "Forwarded", "Last-Update"),
)
_TAG = re.compile(r"^\s*(?:\[[^\]]*\]\s*)+")
_FIRST = re.compile(rb"^(?:diff --git |--- |Index: )", re.MULTILINE)


class Head(NamedTuple):
    """What stands above the first diff: a subject, text of any length, and further fields."""

    subject: str
    text: str = ""
    fields: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, data: bytes, name: str) -> Head:
        """Of a patch: DEP-3 fields, or the head of a mail, whose body counts as well."""
        fields = dict(reversed(parse(data, name).dep3))
        first, _, rest = fields.pop("Description", "").partition("\n")
        date = _mail_date(fields.pop("Date", ""))
        if date:
            fields.setdefault("Last-Update", date)
        head = data[: split_head(data)].decode("utf-8", "replace")
        if re.search(r"^Subject:", head, re.MULTILINE) and not re.search(
            r"^Description:", head, re.MULTILINE
        ):
            rest = rest.replace("\n", " ")
            first = _TAG.sub("", f"{first} {rest}".strip())
            rest = _mail_body(head)
            fields = {k: v for k, v in fields.items() if k in _ORDER}
        return cls(first or name.removesuffix(".patch"), rest, tuple(fields.items()))

    def get(self, key: str) -> str | None:
        """A further field."""
        return dict(self.fields).get(key)

    def having(self, **fields: str | None) -> Head:
        """With further fields, where they are not there (``last_update`` is Last-Update)."""
        known = dict(self.fields)
        for key, value in fields.items():
            if value:
                known.setdefault(_key(key), value)
        return self._replace(fields=tuple(known.items()))

    def with_fields(self, **fields: str) -> Head:
        """With these further fields, whatever they held (``last_update`` is Last-Update)."""
        new = {_key(name): value for name, value in fields.items()}
        return self._replace(fields=tuple({**dict(self.fields), **new}.items()))

    def render(self) -> bytes:
        """The lines above the diff, with the empty one behind them."""
        lines = [f"Description: {self.subject}"]
        lines += [f" {line.rstrip()}" if line.strip() else " ." for line in self.text.splitlines()]
        known = dict(self.fields)
        for key in (*(k for k in _ORDER if k in known), *(k for k in known if k not in _ORDER)):
            value = known[key].split("\n")
            lines.append(f"{key}: {value[0]}".rstrip())
            lines += [f" {line}" if line.strip() else " ." for line in value[1:]]
        return ("\n".join(lines) + "\n\n").encode("utf-8", "surrogateescape")

    def message(self) -> str:
        """The same as a commit's message: subject and text."""
        return f"{self.subject}\n\n{self.text}\n" if self.text.strip() else f"{self.subject}\n"


def _key(name: str) -> str:
    return "-".join(part.capitalize() for part in name.split("_"))


def split_head(data: bytes) -> int:
    """Where the first diff of a patch begins."""
    found = _FIRST.search(data)
    return len(data) if found is None else found.start()


def _mail_body(head: str) -> str:
    """The text between a mail's head and its ``---``, without trailers of signatures."""
    body = head.partition("\n\n")[2]
    body = re.split(r"^---\s*$", body, maxsplit=1, flags=re.MULTILINE)[0]
    return body.strip("\n")


def _mail_date(text: str) -> str:
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text).date().isoformat() if text else ""
    except ValueError:
        return ""


def slug(text: str) -> str:
    """A file name's part out of a subject, as ``git format-patch`` makes it."""
    words = re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()
    return textwrap.shorten(words, 52, placeholder="").replace(" ", "-") or "patch"


def patch_names(folder: str, subjects: Sequence[str], first: int = 1) -> list[str]:
    """``FOLDER/0001-subject.patch`` for each, below ``patches/``."""
    return [f"{folder}/{first + n:04}-{slug(one)}.patch" for n, one in enumerate(subjects)]
