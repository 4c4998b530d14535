"""TOML bytes → :class:`~patchkit.model.Bundle`, with every problem reported at once.

Owns the manifest format, its lock file, and what a version range means.  Must not do I/O.
tomli, packaging, ast and difflib are imported where they are used: a caller that only needs
a profile or a name pays for none of them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from .errors import ManifestError
from .jit import CACHES
from .model import (
    Assertion,
    Bundle,
    Condition,
    Literal_,
    Pristine,
    Profile,
    ProfileVariant,
    Target,
    Variant,
)
from .names import normalise

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

SCHEMA = 1
LONGEST = 100
NAME = "[a-z0-9][a-z0-9._-]*"
DISTRIBUTION = "[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
VARIABLE = "[A-Za-z_][A-Za-z0-9_]*"
SHA256 = "[0-9a-f]{64}"
KINDS = ("pattern", "text", "literal", "condition", "defined")

# The keys of each kind of table, in the order of the contract.  The parser and the schema
# for editors both read it.
KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "": (
            "schema", "name", "version", "summary", "description", "requires", "conflicts",
            "target", "assert", "profile", "caches",
        ),
        "target": ("distribution", "required", "variant"),
        "target.variant": ("versions", "strip", "patches", "upstream", "unneeded"),
        "assert": (
            "distribution", "file", *KINDS, "within", "count", "min", "max", "absent", "in",
            "versions", "message",
        ),
        "assert.literal": ("name", "has"),
        "assert.condition": ("test", "given", "is"),
        "profile": ("env", "args", "variant"),
        "profile.variant": ("distribution", "versions", "env", "args"),
        "lock": ("schema", "patches", "pristine"),
        "lock.pristine": ("distribution", "versions", "releases", "files"),
    }
)  # fmt: skip

_TYPES: Mapping[type, str] = MappingProxyType(
    {
        str: "a string", bool: "true or false", int: "an integer", float: "a float",
        list: "an array", dict: "a table",
    }
)  # fmt: skip

T = TypeVar("T")


#: More problems than this are not told, nor looked for.
MOST_PROBLEMS = 100


class _Problem(NamedTuple):
    key: str
    text: str


class _Enough(Exception):
    """There are as many problems as are told."""


# -- public -----------------------------------------------------------------------------


def parse_manifest(data: bytes, name: str, lock: bytes | None = None) -> Bundle:
    """Read ``manifests/NAME.toml`` and, where there is one, ``manifests/NAME.lock``.

    ``name`` is the file's stem.  Raises :class:`ManifestError` whose ``detail`` holds one
    line for each problem, with its key path; nothing else is raised, whatever the bytes.
    """
    problems: list[_Problem] = []
    bundle = None
    with suppress(_Enough):
        values = _load(data, name, "toml")
        newer = _check_schema(_Table(values, "", "", problems, known=False))
        if newer:  # What a newer format holds cannot be called wrong here.
            raise _error(name, problems)
        del problems[:]
        root = _Table(values, "", "", problems)
        _check_schema(root)
        bundle = _bundle(root, data, name)
        if lock is not None:
            bundle = _with_lock(bundle, lock, name, problems)
    if problems or bundle is None:
        raise _error(name, problems)
    return bundle


def render_lock(patches: Mapping[str, str], pristine: Iterable[Pristine] = ()) -> bytes:
    """The bytes of a lock file: ``patches`` maps paths below ``patches/`` to SHA-256,
    ``pristine`` says what the variants were made for.

    The same values give the same bytes, in whatever order they come.
    """
    lines = [
        "# The SHA-256 of each patch file.  Written by: patchkit lint --update-lock",
        f"schema = {SCHEMA}",
        "",
        "[patches]",
        *(f'{_toml(path)} = "{patches[path]}"' for path in sorted(patches)),
    ]
    for one in _grouped(pristine):
        lines += [
            "",
            "[[pristine]]",
            f"distribution = {_toml(one.distribution)}",
            f"versions = {_toml(one.versions)}",
            f"releases = [{', '.join(map(_toml, one.releases))}]",
            "[pristine.files]",
            *(f'{_toml(path)} = "{sha256}"' for path, sha256 in one.files),
        ]
    return ("\n".join(lines) + "\n").encode()


def _grouped(pristine: Iterable[Pristine]) -> list[Pristine]:
    """Releases with the same files in one entry, oldest first."""
    found: dict[tuple[str, str, tuple[tuple[str, str], ...]], set[str]] = {}
    for one in pristine:
        key = (one.distribution, one.versions, tuple(sorted(one.files)))
        found.setdefault(key, set()).update(one.releases)
    out = [
        Pristine(distribution, versions, tuple(sorted(releases, key=release_order)), files)
        for (distribution, versions, files), releases in found.items()
    ]
    return sorted(out, key=lambda one: (one.distribution, release_order(one.releases[0]), one))


def release_order(version: str) -> tuple[Any, str]:
    """A key that sorts releases by PEP 440, and others before them by their text."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version), version
    except InvalidVersion:
        return Version("0.dev0"), version


def split_requirement(text: str) -> tuple[str, str]:
    """``"other-bundle>=1"`` → ``("other-bundle", ">=1")``; the specifiers may be empty."""
    name = re.split(r"[<>=!~\s]", text, maxsplit=1)[0]
    return name, text[len(name) :].strip()


def is_name(text: str) -> bool:
    """Whether a bundle may be called so: ``.patch`` and ``.diff`` mean a loose patch file."""
    return bool(re.fullmatch(NAME, text)) and not text.endswith((".patch", ".diff"))


def version_matches(specifiers: str, version: str) -> bool:
    """Whether a release is in a range of PEP 440 specifiers; no specifiers mean any.

    Pre-releases count, as an installed one is a fact and no choice.  A version that is
    none by PEP 440 (``unknown``, ``2026-nightly``) matches only ``===`` and the empty range.
    Raises :class:`ManifestError` where the specifiers are none.
    """
    from packaging.version import Version

    wanted, problem = _specifier_set(specifiers)
    if wanted is None:
        raise ManifestError(problem)
    try:
        Version(version)  # SpecifierSet itself raises or not, by its release.
    except ValueError:
        plain = version.strip().lower()
        return all(one.operator == "===" and one.version.lower() == plain for one in wanted)
    return wanted.contains(version, prereleases=True)


def select_variant(target: Target, version: str) -> Variant | None:
    """The variant for a release of the target's distribution, or None.

    Raises :class:`ManifestError` where two match.
    """
    found = [v for v in target.variants if version_matches(v.versions, version)]
    if len(found) > 1:
        ranges = " and ".join(f"versions = {_quote(v.versions)}" for v in found)
        raise ManifestError(
            f"{len(found)} variants match {target.distribution} {version}: {ranges}",
            code="variants-overlap",
            hint="narrow the ranges in the manifest so that one release has one variant",
        )
    return found[0] if found else None


def profile_for(
    bundle: Bundle, versions: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The environment variables and launch arguments of a bundle for what is installed.

    ``versions`` maps normalised distribution names to releases.  The first profile variant
    that matches replaces what it gives, ``env`` or ``args`` or both, and nothing else.
    """
    profile = bundle.profile
    for variant in profile.variants:
        version = versions.get(variant.distribution)
        if version is not None and version_matches(variant.versions, version):
            env = profile.env if variant.env is None else variant.env
            return dict(env), profile.args if variant.args is None else variant.args
    return dict(profile.env), profile.args


# -- reading ----------------------------------------------------------------------------


def _load(data: bytes, name: str, ending: str) -> dict[str, Any]:
    """TOML → dict.  tomli raises other errors too: for a number of too many digits
    (ValueError) and for tables nested too deeply (RecursionError)."""
    import tomli

    try:
        return tomli.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        text = f"not UTF-8: byte 0x{data[error.start]:02x}"
    except tomli.TOMLDecodeError as error:
        line, column, text = error.lineno, error.colno, error.msg
        if data.startswith(b"\xef\xbb\xbf"):
            text = "a byte-order mark: save the file as UTF-8 without one"
    except (ValueError, RecursionError) as error:
        raise _error(name, [_Problem("", f"not readable as TOML: {error}")], ending) from None
    problem = _Problem(f"line {line}, column {column}", text)
    raise _error(name, [problem], ending).at(line=line)


def _error(name: str, problems: list[_Problem], ending: str = "toml") -> ManifestError:
    file = f"manifests/{_plain(name)}.{ending}"
    count = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"
    count += " or more" if len(problems) >= MOST_PROBLEMS else ""
    return ManifestError(
        f"{file}: {count}",
        bundle=name,
        file=file,
        hint=f"correct it, then run: patchkit lint {_plain(name)}",
        detail=tuple(f"{p.key}: {p.text}" if p.key else p.text for p in problems),
        data={"problems": [{"key": p.key, "message": p.text} for p in problems]},
    )


class _Table:
    """One TOML table: its values, its key path, and where its problems go."""

    __slots__ = ("_problems", "_values", "path")

    def __init__(
        self,
        values: dict[str, Any],
        path: str,
        place: str,
        problems: list[_Problem],
        *,
        known: bool = True,
    ) -> None:
        self._values = values
        self._problems = problems
        self.path = path
        for key in values if known else ():
            if key not in KEYS[place]:
                self.problem(key, f"unknown key; {nearest(key, KEYS[place])}")

    def at(self, *keys: str | int) -> str:
        """The path of a key in this table: ``target[0].variant[1].versions``."""
        path = self.path
        for key in keys:
            if isinstance(key, int):
                path += f"[{key}]"
            elif key:
                shown = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _quote(key)
                path += f".{shown}" if path and not path.endswith(" ") else shown
        return path

    def problem(self, key: str, text: str, *inner: str | int) -> None:
        """Report what is wrong with a key, or with something inside of its value."""
        self._problems.append(_Problem(self.at(key, *inner), text))
        if len(self._problems) >= MOST_PROBLEMS:
            raise _Enough

    def has(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str, kind: type[T], *, required: bool = False) -> T | None:
        """The value, if it is there and of exactly this type (True is no integer)."""
        if key not in self._values:
            if required:
                self.problem(key, f"is missing; it must be {_TYPES[kind]}")
            return None
        value = self._values[key]
        if type(value) is not kind:
            self.problem(key, f"must be {_TYPES[kind]}, not {_kind(value)}")
            return None
        return value

    def text(
        self, key: str, *, required: bool = False, check: Callable[[str], str] | None = None
    ) -> str | None:
        """A string; ``check`` returns what is wrong with it, or nothing."""
        value = self.get(key, str, required=required)
        if value is None:
            return None
        wrong = "must not hold a NUL" if "\0" in value else check(value) if check else ""
        if wrong:
            self.problem(key, wrong)
            return None
        return value

    def strings(
        self,
        key: str,
        *,
        filled: bool = False,
        distinct: Callable[[str], str] | None = None,
        check: Callable[[str], str] | None = None,
    ) -> tuple[str, ...] | None:
        """An array of strings; ``distinct`` maps each to what may not come twice."""
        values = self.get(key, list)
        if values is None:
            return None
        if filled and not values:
            self.problem(key, "must not be empty")
        found: list[str] = []
        seen: set[str] = set()
        for index, value in enumerate(values):
            if type(value) is not str:
                self.problem(key, f"must be a string, not {_kind(value)}", index)
                continue
            wrong = "must not hold a NUL" if "\0" in value else check(value) if check else ""
            if not wrong and distinct is not None:
                wrong = f"{_quote(distinct(value))} stands twice" if distinct(value) in seen else ""
                seen.add(distinct(value))
            if wrong:
                self.problem(key, wrong, index)
            else:
                found.append(value)
        return tuple(found)

    def table(self, key: str, place: str) -> _Table | None:
        values: dict[str, Any] | None = self.get(key, dict)
        return None if values is None else _Table(values, self.at(key), place, self._problems)

    def pairs(self, key: str) -> list[tuple[str, Any]]:
        """The entries of a table whose keys are free."""
        values: dict[str, Any] | None = self.get(key, dict)
        return list(values.items()) if values else []

    def tables(self, key: str, place: str) -> list[_Table]:
        """An array of tables, each with its index in its path."""
        values = self._values.get(key, [])
        if isinstance(values, dict):
            self.problem(key, f"must be an array of tables: write [[{place}]]")
            return []
        found: list[_Table] = []
        for index, value in enumerate(self.get(key, list) or []):
            if isinstance(value, dict):
                found.append(_Table(value, self.at(key, index), place, self._problems))
            else:
                self.problem(key, f"must be a table, not {_kind(value)}", index)
        return found


# -- the parts of a manifest ------------------------------------------------------------


def _check_schema(root: _Table) -> bool:
    """Report a wrong ``schema``; True where the file was made for a newer patchkit."""
    schema = root.get("schema", int, required=True)
    if schema is None or schema == SCHEMA:
        return False
    if schema > SCHEMA:
        root.problem("schema", f"{schema} was made for a newer patchkit; this one reads {SCHEMA}")
        return True
    root.problem("schema", f"must be {SCHEMA}, not {schema}")
    return False


def _bundle(root: _Table, data: bytes, stem: str) -> Bundle:
    name = root.text("name", required=True, check=_name_problem)
    if name is not None and name != stem:
        root.problem("name", f"is {_quote(name)}, but the file is {_quote(stem + '.toml')}")
    version = root.text("version", required=True, check=_version_problem)
    summary = root.text("summary", check=_line_problem)
    description = root.text("description")
    requires = root.strings(
        "requires", distinct=lambda text: split_requirement(text)[0], check=_requirement_problem
    )
    conflicts = root.strings("conflicts", distinct=str, check=_name_problem)
    required = {split_requirement(text)[0] for text in requires or ()}
    for other in sorted(required & set(conflicts or ())):
        root.problem("conflicts", f"{_quote(other)} is also required")
    for key, names in (("requires", required), ("conflicts", conflicts or ())):
        if stem in names:
            root.problem(key, "names the bundle itself")
    targets = [_target(table) for table in root.tables("target", "target")]
    _report_twice(root, "target", [t.distribution for t in targets])
    asserts = [
        _assertion(table, f"assert[{index}]")
        for index, table in enumerate(root.tables("assert", "assert"))
    ]
    profile = root.table("profile", "profile")
    return Bundle(
        name=stem,
        version=version or "0",
        summary=summary or "",
        description=description or "",
        requires=requires or (),
        conflicts=conflicts or (),
        targets=tuple(targets),
        asserts=tuple(asserts),
        profile=_profile(profile) if profile is not None else Profile(),
        caches=_caches(root),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _target(table: _Table) -> Target:
    distribution = _distribution(table)
    required = table.get("required", bool)
    variants = tuple(_variant(one) for one in table.tables("variant", "target.variant"))
    if not table.has("variant"):
        table.problem("variant", "is missing; a target needs [[target.variant]] tables")
    return Target(distribution, variants, True if required is None else required)


def _variant(table: _Table) -> Variant:
    versions = table.text("versions", required=True, check=_specifier_problem)
    patches = table.strings("patches", filled=True, distinct=str, check=_path_problem)
    upstream = table.text("upstream", check=_empty_problem)
    strip = table.get("strip", int)
    if strip is not None and strip < 0:
        table.problem("strip", "must not be negative")
    unneeded = table.text("unneeded", check=_empty_problem)
    given = [key for key in ("patches", "upstream", "unneeded") if table.has(key)]
    if len(given) != 1:
        table.problem("", "needs patches, upstream or unneeded, one of them")
    elif table.has("strip") and not table.has("patches"):
        table.problem("strip", "has no meaning without patches")
    return Variant(versions or "", patches or (), strip, upstream, unneeded)


def _assertion(table: _Table, key: str) -> Assertion:
    distribution = _distribution(table)
    file = table.text("file", required=True, check=_path_problem)
    python = file is None or file.endswith((".py", ".pyi"))
    kinds = [kind for kind in KINDS if table.has(kind)]
    if len(kinds) != 1:
        has = f"; it has {' and '.join(kinds)}" if kinds else ""
        table.problem("", f"needs exactly one of {', '.join(KINDS)}{has}")
    literal = table.table("literal", "assert.literal")
    condition = table.table("condition", "assert.condition")
    defined = table.strings("defined", filled=True, distinct=str, check=_dotted_problem)
    syntax = not {"pattern", "text"} & set(kinds)
    scope = table.text("in", check=_scope_problem)
    if not python:
        for only in ("within", "literal", "condition", "defined"):
            if table.has(only):
                table.problem(only, "is for Python files only")
        if scope == "code":
            table.problem("in", '"code" is for Python files only')
    elif kinds and syntax and scope == "text":
        table.problem("in", '"text" has no meaning for what is judged on the syntax tree')
    if kinds and syntax:
        for only in ("count", "min", "max", "absent"):
            if table.has(only):
                table.problem(only, "is for pattern and text only")
    minimum, maximum = _counts(table)
    return Assertion(
        key=key,
        distribution=distribution,
        file=file or "",
        pattern=table.text("pattern", check=_pattern_problem),
        text=table.text("text", check=_empty_problem),
        literal=_literal(literal) if literal is not None else None,
        condition=_condition(condition) if condition is not None else None,
        defined=defined or (),
        within=table.text("within", check=_dotted_problem),
        minimum=minimum,
        maximum=maximum,
        scope=_scope(scope, python=python),
        versions=table.text("versions", check=_specifier_problem),
        message=table.text("message") or "",
    )


def _scope(given: str | None, *, python: bool) -> Literal["code", "text"]:
    return "code" if (given == "code" if given is not None else python) else "text"


def _counts(table: _Table) -> tuple[int, int | None]:
    """How often an assertion must match: at least, and at most (None: any number).

    ``max`` alone asks for no minimum: "at most twice" holds for none.
    """
    numbers = {key: table.get(key, int) for key in ("count", "min", "max")}
    for key, number in numbers.items():
        if number is not None and number < 0:
            table.problem(key, "must not be negative")
    absent = table.get("absent", bool)
    if absent is False:
        table.problem("absent", "can only be true; leave it out otherwise")
    given = [key for key in ("count", "absent", "min", "max") if table.has(key)]
    if len(given) > 1 and given != ["min", "max"]:
        table.problem(given[0], f"excludes {' and '.join(given[1:])}")
        return 1, None
    if absent is not None:
        return 0, 0
    count, low, high = numbers.values()
    if count is not None:
        return count, count
    if low is not None and high is not None and low > high:
        table.problem("min", f"{low} is more than max, {high}")
    if low == 0 and not table.has("max"):
        table.problem("min", "0 without max is an assertion that cannot fail")
    if low is None:
        return (1 if high is None else 0), high
    return low, high


def _literal(table: _Table) -> Literal_:
    name = table.text("name", required=True, check=_dotted_problem)
    has = table.get("has", list, required=True)
    if has is not None and not has:
        table.problem("has", "must not be empty")
    for index, value in enumerate(has or []):
        wrong = _value_problem(value)
        if wrong:
            table.problem("has", wrong, index)
    return Literal_(name or "", tuple(has or ()))


def _condition(table: _Table) -> Condition:
    test = table.text("test", required=True, check=_expression_problem)
    expected = table.get("is", bool, required=True)
    given = table.pairs("given")
    for key, value in given:
        wrong = _expression_problem(key) or _value_problem(value)
        if wrong:
            table.problem("given", wrong, key)
    return Condition(test or "", tuple(given), bool(expected))


def _profile(table: _Table) -> Profile:
    variants: list[ProfileVariant] = []
    for one in table.tables("variant", "profile.variant"):
        if not one.has("env") and not one.has("args"):
            one.problem("", "needs env or args")
        variants.append(
            ProfileVariant(
                _distribution(one),
                one.text("versions", required=True, check=_specifier_problem) or "",
                _environment(one),
                one.strings("args"),
            )
        )
    return Profile(_environment(table) or (), table.strings("args") or (), tuple(variants))


def _environment(table: _Table) -> tuple[tuple[str, str], ...] | None:
    if not table.has("env"):
        return None
    found: list[tuple[str, str]] = []
    for key, value in table.pairs("env"):
        wrong = "" if re.fullmatch(VARIABLE, key) else "is no name of an environment variable"
        if type(value) is not str:
            wrong = wrong or f"must be a string, not {_kind(value)}"
        elif "\0" in value:
            wrong = wrong or "must not hold a NUL"
        if wrong:
            table.problem("env", wrong, key)
        else:
            found.append((key, value))
    return tuple(found)


def _caches(root: _Table) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: list[tuple[str, tuple[str, ...]]] = []
    for key, values in root.pairs("caches"):
        if key not in CACHES:
            root.problem("caches", f"no such cache is known; {nearest(key, CACHES)}", key)
        elif type(values) is not list or not values:
            root.problem("caches", "must be an array of names, and not empty", key)
        else:
            wrong = [number for number, value in enumerate(values) if not _is_entry(value)]
            for number in wrong:
                value = values[number]
                shown = _quote(value) if type(value) is str else _kind(value)
                root.problem("caches", f"{shown} is no name of a file or folder", key, number)
            if not wrong:
                found.append((key, tuple(values)))
    return tuple(found)


def _with_lock(bundle: Bundle, lock: bytes, name: str, problems: list[_Problem]) -> Bundle:
    root = _Table(_load(lock, name, "lock"), f"{_plain(name)}.lock: ", "lock", problems)
    _check_schema(root)
    if not root.has("patches"):
        root.problem("patches", "is missing; it must be a table")
    entries: list[tuple[str, str]] = []
    for path, digest in root.pairs("patches"):
        wrong = _path_problem(path)
        if type(digest) is not str or not re.fullmatch(SHA256, digest):
            wrong = wrong or "must be a SHA-256 in small hexadecimal digits"
        if wrong:
            root.problem("patches", wrong, path)
        else:
            entries.append((path, digest))
    pristine = [_pristine(one) for one in root.tables("pristine", "lock.pristine")]
    return bundle._replace(lock=tuple(sorted(entries)), pristine=tuple(pristine))


def _pristine(table: _Table) -> Pristine:
    files: list[tuple[str, str]] = []
    for path, digest in table.pairs("files"):
        wrong = _path_problem(path)
        if type(digest) is not str or not re.fullmatch(SHA256, digest):
            wrong = wrong or "must be a SHA-256 in small hexadecimal digits"
        if wrong:
            table.problem("files", wrong, path)
        else:
            files.append((path, digest))
    if not table.has("files"):
        table.problem("files", "is missing; it must be a table")
    return Pristine(
        _distribution(table),
        table.text("versions", required=True, check=_specifier_problem) or "",
        table.strings("releases", filled=True, distinct=str) or (),
        tuple(sorted(files)),
    )


def _distribution(table: _Table) -> str:
    name = table.text("distribution", required=True, check=_distribution_problem)
    return normalise(name or "")


def _report_twice(table: _Table, key: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name and name in seen:
            table.problem(key, f"{_quote(name)} stands twice; put its variants together")
        seen.add(name)


# -- single values: each returns what is wrong, or nothing ------------------------------


def _empty_problem(text: str) -> str:
    return "" if text.strip() else "must not be empty"


def _line_problem(text: str) -> str:
    return "must be one line" if len(text.splitlines()) > 1 else ""


def _name_problem(text: str) -> str:
    if not re.fullmatch(NAME, text):
        return f"{_quote(text)} is no bundle name: it must match {NAME}"
    if not is_name(text):
        return f"{_quote(text)} is no bundle name: it would mean a loose patch file"
    return ""


def _distribution_problem(text: str) -> str:
    return "" if re.fullmatch(DISTRIBUTION, text) else f"{_quote(text)} is no project name"


def _version_problem(text: str) -> str:
    from packaging.version import Version

    try:
        Version(text)
    except ValueError:
        return f"{_quote(text)} is no PEP 440 version"
    return ""


def _specifier_set(text: str) -> tuple[SpecifierSet | None, str]:
    """The set, or None and what is wrong."""
    from packaging.specifiers import SpecifierSet

    try:
        found = SpecifierSet(text)
        found.contains("0", prereleases=True)  # Some faults only show in use.
    except ValueError:
        meant = f"; did you mean {_quote('==' + text)}?" if not _version_problem(text) else ""
        return None, f"{_quote(text)} is no PEP 440 version specifier{meant}"
    return found, ""


def _specifier_problem(text: str) -> str:
    return _specifier_set(text)[1]


def _requirement_problem(text: str) -> str:
    name, specifiers = split_requirement(text)
    return _name_problem(name) or _specifier_problem(specifiers)


def _path_problem(text: str) -> str:
    if text.startswith("/"):
        return f"{_quote(text)} is absolute; it must be relative"
    if "\\" in text:
        return f"{_quote(text)} has a backslash; folders are parted by /"
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        return f"{_quote(text)} holds a control character"
    if any(part in ("", ".", "..") for part in text.split("/")):
        return f"{_quote(text)} must be a plain path, without '', '.' and '..' in it"
    return ""


def _dotted_problem(text: str) -> str:
    import keyword

    parts = text.split(".")
    good = all(part.isidentifier() and not keyword.iskeyword(part) for part in parts)
    return "" if good else f"{_quote(text)} is no dotted Python name"


def _scope_problem(text: str) -> str:
    return "" if text in ("code", "text") else f'must be "code" or "text", not {_quote(text)}'


def _pattern_problem(text: str) -> str:
    import warnings

    if not text:
        return "must not be empty"
    try:
        with warnings.catch_warnings():
            # A pattern that Python warns of would warn again at each use.
            warnings.simplefilter("error")
            re.compile(text)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        return f"{_quote(text)} is no regular expression: {error}"
    return ""


def _expression_problem(text: str) -> str:
    from .syntax import parse

    try:
        parse(text.strip(), "eval", strict=True)
    except (SyntaxError, ValueError, Warning) as error:  # ValueError: a NUL, before 3.12.
        reason = error.msg if isinstance(error, SyntaxError) else error
        return f"{_quote(text)} is no Python expression: {reason}"
    except (RecursionError, MemoryError):  # The parser's own stack is a MemoryError.
        return "is no Python expression: nested too deeply"
    return ""


def _value_problem(value: object) -> str:
    """A value that code and the state's JSON can both hold."""
    if type(value) is list:
        return next((wrong for one in value if (wrong := _value_problem(one))), "")
    if type(value) is float and not math.isfinite(value):
        return "must be finite"
    if type(value) in (str, bool, int, float):
        return ""
    return f"must be a string, a number, true or false, or an array of these, not {_kind(value)}"


def _is_entry(value: object) -> bool:
    return (
        type(value) is str
        and value not in ("", ".", "..")
        and not any(char in "/\\*?[" or ord(char) < 32 for char in value)
    )


# -- words ------------------------------------------------------------------------------


def nearest(key: str, known: tuple[str, ...]) -> str:
    """What to say of a key that nobody knows: the known one that is most like it, or all."""
    import difflib

    near = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.5)
    if near:
        return f"did you mean {_quote(near[0])}?"
    return f"known here: {', '.join(known)}"


def _kind(value: object) -> str:
    return _TYPES.get(type(value), "a date or time")


def _quote(text: str) -> str:
    """A value in a message: one line, nothing that a terminal obeys, not endless."""
    text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _toml(text: str) -> str:
    """A TOML basic string: JSON's, but for an escape of its own for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _plain(text: str) -> str:
    """A file name as it can stand in a message."""
    return text if text.isprintable() else _quote(text)


# -- the schema for editors -------------------------------------------------------------


def manifest_schema() -> dict[str, Any]:
    """The manifest format as a JSON Schema (draft 7, which TOML editors read).

    It says less than the parser: no schema can tell that a version range is one.
    """
    line = {"type": "string", "pattern": r"^[^\r\n]*$"}
    names = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    path = {"type": "string", "pattern": r"^(?!/)(?!(.*/)?\.{0,2}(/|$))[^\\\x00-\x1f\x7f]+$"}
    distribution = {"type": "string", "pattern": f"^{DISTRIBUTION}$"}
    number = {"type": "integer", "minimum": 0}
    scalar = {"type": ["string", "number", "boolean", "array"]}
    filled = {"minItems": 1}
    env = {
        "type": "object",
        "propertyNames": {"pattern": f"^{VARIABLE}$"},
        "additionalProperties": {"type": "string"},
    }
    args = {"type": "array", "items": {"type": "string"}}
    name = {"type": "string", "pattern": rf"^(?!.*\.(patch|diff)$){NAME}$"}
    versions = {"type": "string", "description": "PEP 440 specifiers, such as >=0.5.8,<0.5.9"}
    places: dict[str, dict[str, Any]] = {
        "target.variant": {
            "versions": versions,
            "strip": {**number, "description": "leading path parts to drop"},
            "patches": {**names, **filled, "items": path},
            "upstream": {"type": "string", "minLength": 1, "description": "why none is needed"},
            "unneeded": {
                "type": "string",
                "minLength": 1,
                "description": "why there is nothing to patch",
            },
        },
        "assert.literal": {"name": {"type": "string"}, "has": {"type": "array", **filled}},
        "assert.condition": {
            "test": {"type": "string", "minLength": 1},
            "given": {"type": "object", "additionalProperties": scalar},
            "is": {"type": "boolean"},
        },
        "profile.variant": {
            "distribution": distribution,
            "versions": versions,
            "env": env,
            "args": args,
        },
    }

    def table(place: str, properties: dict[str, Any], *required: str, **more: Any) -> Any:
        ordered = {key: properties[key] for key in KEYS[place]}
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": ordered,
            **({"required": list(required)} if required else {}),
            **more,
        }

    def tables(place: str, properties: dict[str, Any], *required: str, **more: Any) -> Any:
        return {"type": "array", "items": table(place, properties, *required, **more)}

    one_of = [{"required": [key]} for key in ("patches", "upstream", "unneeded")]
    target = {
        "distribution": distribution,
        "required": {"type": "boolean", "default": True},
        "variant": tables("target.variant", places["target.variant"], "versions", oneOf=one_of),
    }
    assertion = {
        "distribution": distribution,
        "file": path,
        "pattern": {"type": "string", "minLength": 1, "format": "regex"},
        "text": {"type": "string", "minLength": 1},
        "literal": table("assert.literal", places["assert.literal"], "name", "has"),
        "condition": table("assert.condition", places["assert.condition"], "test", "is"),
        "defined": {**names, **filled},
        "within": {"type": "string", "description": "a def or class, dotted"},
        "count": number,
        "min": number,
        "max": number,
        "absent": {"const": True},
        "in": {"enum": ["code", "text"]},
        "versions": versions,
        "message": {"type": "string"},
    }
    profile = {
        "env": env,
        "args": args,
        "variant": tables(
            "profile.variant",
            places["profile.variant"],
            "distribution",
            "versions",
            anyOf=[{"required": ["env"]}, {"required": ["args"]}],
        ),
    }
    entry = {"type": "string", "pattern": r"^(?!\.{1,2}$)[^/\\*?\[\x00-\x1f]+$"}
    root = {
        "schema": {"const": SCHEMA},
        "name": {**name, "description": "the file's name without .toml"},
        "version": {"type": "string", "description": "a PEP 440 version"},
        "summary": line,
        "description": {"type": "string"},
        "requires": {**names, "description": "bundles applied first, in this order"},
        "conflicts": {**names, "items": name},
        "target": tables("target", target, "distribution", "variant"),
        "assert": tables(
            "assert",
            assertion,
            "distribution",
            "file",
            oneOf=[{"required": [kind]} for kind in KINDS],
        ),
        "profile": table("profile", profile),
        "caches": {
            "type": "object",
            "propertyNames": {"enum": list(CACHES)},
            "additionalProperties": {"type": "array", "items": entry, **filled},
        },
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "patchkit manifest",
        **table("", root, "schema", "name", "version"),
    }
