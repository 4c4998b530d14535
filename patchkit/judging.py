"""The assertions of a bundle set on the wanted contents, before anything is written.

Owns which assertions are judged for what is installed, and what is compiled into the
state for ``verify``: each assertion with the digests of all that it read.
"""

from __future__ import annotations

from collections.abc import Callable

from .compiled import Clock, assertion_as_json
from .distributions import find_distribution
from .environment import Environment
from .errors import Refused
from .fsio import digest
from .manifest import version_matches
from .model import Assertion, Finding
from .plan import Key
from .series import Chosen, root_name
from .state import AssertEntry, Home


class Judge:
    """Judges by what ``read`` gives: the wanted bytes of a file, None for an absent one."""

    def __init__(
        self,
        env: Environment,
        home: Home,
        read: Callable[[Key], bytes | None],
        root_index: Callable[[str], int],
    ) -> None:
        self._env = env
        self._home = home
        self._read_file = read
        self._root_index = root_index
        self._clock = Clock()
        self._bytes: dict[Key, bytes | None] = {}
        self._digests: dict[Key, str | None] = {}

    def judge(self, chosen: list[Chosen]) -> list[AssertEntry]:
        """Every assertion of the set; raises :class:`Refused` for the first that fails."""
        entries = []
        for item in chosen:
            for assertion in item.bundle.asserts:
                entry = self._one(item, assertion)
                if entry is not None:
                    entries.append(entry)
        return entries

    def _one(self, item: Chosen, assertion: Assertion) -> AssertEntry | None:
        dist = find_distribution(self._env, assertion.distribution)
        if dist is None:
            if assertion.distribution in item.skipped:
                return None
            raise Refused(
                f"{assertion.distribution} is not installed in {self._env.site_packages}, and"
                f" {assertion.key} asks for it",
                code="not-installed",
                bundle=item.bundle.name,
                hint="name another environment: --python PATH (an interpreter or venv folder)",
            )
        release = item.release(dist.name) or dist.version
        if assertion.versions and not version_matches(assertion.versions, release):
            return None
        root = root_name(self._home, dist.root)

        def read(path: str) -> bytes | None:
            return self._read((root, path))

        finding = self._clock.judged(assertion, read(assertion.file), read)
        if not finding.ok:
            raise assertion_failed(item, assertion, finding)
        reads = {assertion.file, *finding.reads}
        return AssertEntry(
            bundle=item.bundle.name,
            root=self._root_index(root),
            assertion=assertion_as_json(assertion),
            reads={path: self._digests[(root, path)] for path in sorted(reads)},
        )

    def _read(self, key: Key) -> bytes | None:
        if key not in self._bytes:
            data = self._bytes[key] = self._read_file(key)
            self._digests[key] = None if data is None else digest(data)
        return self._bytes[key]


def assertion_failed(item: Chosen, assertion: Assertion, finding: Finding) -> Refused:
    """The error for an assertion that does not hold."""
    what = assertion.message or "an assertion would not hold"
    hint = "what the patch is for is not reached in this release"
    if any(part.reason for part in item.parts):
        hint = "this release is said to need no patch, and does not do what is asserted"
    elif not any(part.patches for part in item.parts):
        hint = "the setting does not fit the installed release"
    return Refused(
        f"{what} ({assertion.key} on {assertion.file}: {finding.message})",
        code="assertion-failed",
        bundle=item.bundle.name,
        file=assertion.file,
        line=finding.line,
        hint=f"{hint}; nothing was changed",
        data={"assertion": assertion.key},
    )
