"""The manifest format: what is read, what is refused, and with which words."""

from __future__ import annotations

import hashlib
import json
import math
import re
import string
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from patchkit import manifest
from patchkit.errors import ManifestError
from patchkit.jit import CACHES
from patchkit.manifest import (
    KEYS,
    is_name,
    manifest_schema,
    parse_manifest,
    profile_for,
    render_lock,
    select_variant,
    split_requirement,
    version_matches,
)
from patchkit.model import (
    Assertion,
    Bundle,
    Condition,
    Literal_,
    Profile,
    ProfileVariant,
    Target,
    Variant,
)
from patchkit.names import normalise
from tests.releases import ROOT

HEAD = 'schema = 1\nname = "demo"\nversion = "1.0"\n'
ASSERT = '[[assert]]\ndistribution = "six"\nfile = "six.py"\n'
VARIANT = '[[target]]\ndistribution = "six"\n[[target.variant]]\nversions = ">=1"\n'

#: Every key of the contract.
FULL = """\
schema = 1
name = "demo"
version = "1.0.0"
summary = "one line"
description = \"\"\"why, and
what was seen\"\"\"
requires = ["other-bundle>=1", "third"]
conflicts = ["rival"]

[[target]]
distribution = "SGLang"
required = true
  [[target.variant]]
  versions = ">=0.5.8,<0.5.9"
  strip = 2
  patches = ["demo/a.patch", "demo/sub/ü.patch"]
  [[target.variant]]
  versions = ">=0.5.20"
  upstream = "merged there"
  [[target.variant]]
  versions = "<0.5"
  unneeded = "not there yet"

[[target]]
distribution = "flashinfer_python"
required = false
  [[target.variant]]
  versions = ""
  patches = ["demo/b.patch"]

[[assert]]
distribution = "sglang"
file = "sglang/srt/layers/communicator.py"
pattern = '_is_sm120_supported'
within = "outer.apply"
count = 1
in = "text"
versions = ">=0.5.8"
message = "what it means"

[[assert]]
distribution = "flashinfer.python"
file = "flashinfer/data/a.cuh"
text = "12, "
min = 1
max = 3

[[assert]]
distribution = "sglang"
file = "a.pyi"
literal = { name = "TABLE", has = [12, "x", 1.5, true, [1, 2]] }

[[assert]]
distribution = "sglang"
file = "a.py"
condition = { test = "a and b()", given = { "b()" = true, "c.d" = [1, "x"], n = 3 }, is = false }

[[assert]]
distribution = "sglang"
file = "a.py"
in = "code"
defined = ["is_sm120_supported", "utils.f"]

[profile]
env = { NCCL_ALGO = "Ring", EMPTY = "" }
args = ["--cuda-graph-max-bs", "128", ""]
[[profile.variant]]
distribution = "sglang"
versions = ">=0.5.14"
args = ["--cuda-graph-max-bs-decode", "128"]
[[profile.variant]]
distribution = "sglang"
versions = ">=0.5.13"
env = {}

[caches]
flashinfer-jit = ["trtllm_comm", "norm"]
"""


def parse(text: str, lock: str | None = None, name: str = "demo") -> Bundle:
    return parse_manifest(text.encode(), name, None if lock is None else lock.encode())


def problems(text: str, lock: str | None = None, name: str = "demo") -> list[str]:
    with pytest.raises(ManifestError) as caught:
        parse(text, lock, name)
    error = caught.value
    count = len(error.detail)
    assert re.fullmatch(
        rf"manifests/{re.escape(name)}\.(toml|lock): {count} problem{'s' * (count != 1)}",
        error.message,
    )
    assert error.bundle == name
    assert error.exit_code == 3 and error.code == "manifest"
    assert f"patchkit lint {name}" in (error.hint or "")
    shown = [p["message"] if not p["key"] else ": ".join(p.values()) for p in
             error.data["problems"]]  # fmt: skip
    assert tuple(shown) == error.detail
    return list(error.detail)


# -- what is read -----------------------------------------------------------------------


def test_every_key_of_the_contract() -> None:
    bundle = parse(FULL)
    assert bundle == Bundle(
        name="demo",
        version="1.0.0",
        summary="one line",
        description="why, and\nwhat was seen",
        requires=("other-bundle>=1", "third"),
        conflicts=("rival",),
        targets=(
            Target(
                "sglang",
                (
                    Variant(">=0.5.8,<0.5.9", ("demo/a.patch", "demo/sub/ü.patch"), 2, None),
                    Variant(">=0.5.20", (), None, "merged there"),
                    Variant("<0.5", unneeded="not there yet"),
                ),
                True,
            ),
            Target("flashinfer-python", (Variant("", ("demo/b.patch",)),), False),
        ),
        asserts=(
            Assertion(
                "assert[0]",
                "sglang",
                "sglang/srt/layers/communicator.py",
                pattern="_is_sm120_supported",
                within="outer.apply",
                minimum=1,
                maximum=1,
                scope="text",
                versions=">=0.5.8",
                message="what it means",
            ),
            Assertion(
                "assert[1]",
                "flashinfer-python",
                "flashinfer/data/a.cuh",
                text="12, ",
                minimum=1,
                maximum=3,
                scope="text",
            ),
            Assertion(
                "assert[2]",
                "sglang",
                "a.pyi",
                literal=Literal_("TABLE", (12, "x", 1.5, True, [1, 2])),
                scope="code",
            ),
            Assertion(
                "assert[3]",
                "sglang",
                "a.py",
                condition=Condition(
                    "a and b()", (("b()", True), ("c.d", [1, "x"]), ("n", 3)), False
                ),
                scope="code",
            ),
            Assertion(
                "assert[4]",
                "sglang",
                "a.py",
                defined=("is_sm120_supported", "utils.f"),
                scope="code",
            ),
        ),
        profile=Profile(
            (("NCCL_ALGO", "Ring"), ("EMPTY", "")),
            ("--cuda-graph-max-bs", "128", ""),
            (
                ProfileVariant("sglang", ">=0.5.14", None, ("--cuda-graph-max-bs-decode", "128")),
                ProfileVariant("sglang", ">=0.5.13", (), None),
            ),
        ),
        caches=(("flashinfer-jit", ("trtllm_comm", "norm")),),
        sha256=hashlib.sha256(FULL.encode()).hexdigest(),
        lock=None,
        loose=False,
    )


def test_a_manifest_needs_three_keys_only() -> None:
    bundle = parse(HEAD)
    assert (bundle.name, bundle.version, bundle.summary, bundle.description) == (
        "demo", "1.0", "", "",
    )  # fmt: skip
    assert (bundle.targets, bundle.asserts, bundle.requires, bundle.conflicts) == ((),) * 4
    assert bundle.profile == Profile() and bundle.caches == () and bundle.lock is None


def test_line_ends_of_windows_are_read_and_counted_in_the_digest() -> None:
    text = FULL.replace("\n", "\r\n")
    bundle = parse(text)
    assert bundle.targets == parse(FULL).targets
    assert bundle.sha256 == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("", (1, None)),
        ("count = 0", (0, 0)),
        ("count = 2", (2, 2)),
        ("min = 2", (2, None)),
        ("max = 2", (0, 2)),
        ("max = 0", (0, 0)),
        ("min = 0\nmax = 2", (0, 2)),
        ("min = 2\nmax = 2", (2, 2)),
        ("absent = true", (0, 0)),
    ],
)
def test_how_often_an_assertion_must_match(keys: str, expected: tuple[int, int | None]) -> None:
    (found,) = parse(f"{HEAD}{ASSERT}text = 'x'\n{keys}").asserts
    assert (found.minimum, found.maximum) == expected


@pytest.mark.parametrize(
    ("file", "given_scope", "expected"),
    [
        ("a.py", None, "code"),
        ("a.pyi", None, "code"),
        ("a.pyx", None, "text"),
        ("a.cuh", None, "text"),
        ("py", None, "text"),
        ("a.py", "code", "code"),
        ("a.py", "text", "text"),
        ("a.cuh", "text", "text"),
    ],
)
def test_python_is_searched_without_comments_by_default(
    file: str, given_scope: str | None, expected: str
) -> None:
    scope = f'in = "{given_scope}"' if given_scope else ""
    text = f'{HEAD}[[assert]]\ndistribution = "six"\nfile = "{file}"\ntext = "x"\n{scope}'
    assert parse(text).asserts[0].scope == expected


# -- what is refused --------------------------------------------------------------------

IN_TARGET = "target[0].variant[0]"
ONE_KIND = "assert[0]: needs exactly one of pattern, text, literal, condition, defined"
PLAIN = "must be a string, a number, true or false, or an array of these"
UNCLOSED = "missing ), unterminated subpattern at position 0"

REFUSED = [
    # The head.
    ("", ["schema: is missing; it must be an integer", "name: is missing; it must be a string",
          "version: is missing; it must be a string"]),
    (HEAD.replace("schema = 1", "schema = 0"), ["schema: must be 1, not 0"]),
    (HEAD.replace("schema = 1", "schema = -1"), ["schema: must be 1, not -1"]),
    (HEAD.replace("schema = 1", "schema = true"),
     ["schema: must be an integer, not true or false"]),
    (HEAD.replace("schema = 1", "schema = 1.0"), ["schema: must be an integer, not a float"]),
    (HEAD.replace("schema = 1", "schema = '1'"), ["schema: must be an integer, not a string"]),
    (HEAD.replace('"demo"', '"other"'), ['name: is "other", but the file is "demo.toml"']),
    (HEAD.replace('"demo"', "3"), ["name: must be a string, not an integer"]),
    (HEAD.replace('"demo"', '"Demo"'),
     ['name: "Demo" is no bundle name: it must match [a-z0-9][a-z0-9._-]*']),
    (HEAD.replace('"1.0"', '"one"'), ['version: "one" is no PEP 440 version']),
    (HEAD.replace('"1.0"', "1.0"), ["version: must be a string, not a float"]),
    (HEAD + 'summary = "two\\nlines"', ["summary: must be one line"]),
    (HEAD + 'summary = "two\\u2028lines"', ["summary: must be one line"]),
    (HEAD + "summary = 1979-05-27", ["summary: must be a string, not a date or time"]),
    (HEAD + "description = []", ["description: must be a string, not an array"]),
    (HEAD + 'description = "\\u0000"', ["description: must not hold a NUL"]),
    # Unknown keys.
    (HEAD + "sumary = ''", ['sumary: unknown key; did you mean "summary"?']),
    (HEAD + "Targets = []", ['Targets: unknown key; did you mean "target"?']),
    (HEAD + '"a b" = 1', [f'"a b": unknown key; known here: {", ".join(KEYS[""])}']),
    (HEAD + '"\\u001b[31m" = 1',
     [f'"\\u001b[31m": unknown key; known here: {", ".join(KEYS[""])}']),
    (HEAD + '"\\u007f" = 1', [f'"\\u007f": unknown key; known here: {", ".join(KEYS[""])}']),
    (HEAD + "profile = { arg = [] }", ['profile.arg: unknown key; did you mean "args"?']),
    # requires and conflicts.
    (HEAD + "requires = 'a'", ["requires: must be an array, not a string"]),
    (HEAD + "requires = ['b', 3]", ["requires[1]: must be a string, not an integer"]),
    (HEAD + "requires = ['Bad>=1']",
     ['requires[0]: "Bad" is no bundle name: it must match [a-z0-9][a-z0-9._-]*']),
    (HEAD + "requires = ['>=1']",
     ['requires[0]: "" is no bundle name: it must match [a-z0-9][a-z0-9._-]*']),
    (HEAD + "requires = ['a b']", ['requires[0]: "b" is no PEP 440 version specifier']),
    (HEAD + "requires = ['a=1']", ['requires[0]: "=1" is no PEP 440 version specifier']),
    (HEAD + "requires = ['a>=1', 'a<2']", ['requires[1]: "a" stands twice']),
    (HEAD + "requires = ['demo']", ["requires: names the bundle itself"]),
    (HEAD + "requires = ['x.patch']",
     ['requires[0]: "x.patch" is no bundle name: it would mean a loose patch file']),
    (HEAD + "conflicts = ['a>=1']",
     ['conflicts[0]: "a>=1" is no bundle name: it must match [a-z0-9][a-z0-9._-]*']),
    (HEAD + "conflicts = ['a', 'a']", ['conflicts[1]: "a" stands twice']),
    (HEAD + "conflicts = ['demo']", ["conflicts: names the bundle itself"]),
    (HEAD + "requires = ['a>1']\nconflicts = ['a']", ['conflicts: "a" is also required']),
    # Targets.
    (HEAD + "[target]", ["target: must be an array of tables: write [[target]]"]),
    (HEAD + "target = 3", ["target: must be an array, not an integer"]),
    (HEAD + "target = [3]", ["target[0]: must be a table, not an integer"]),
    (HEAD + "[[target]]",
     ["target[0].distribution: is missing; it must be a string",
      "target[0].variant: is missing; a target needs [[target.variant]] tables"]),
    (HEAD + VARIANT.replace("six", "-six") + "patches = ['a']",
     ['target[0].distribution: "-six" is no project name']),
    (HEAD + VARIANT + "patches = ['a']\n" + VARIANT.replace("six", "SIX") + "patches = ['b']",
     ['target: "six" stands twice; put its variants together']),
    (HEAD + "[[target]]\ndistribution = 'six'\nrequired = 'no'\nvariant = []",
     ["target[0].required: must be true or false, not a string"]),
    (HEAD + "[[target]]\ndistribution = 'six'\n[target.variant]",
     ["target[0].variant: must be an array of tables: write [[target.variant]]"]),
    (HEAD + VARIANT, [f"{IN_TARGET}: needs patches, upstream or unneeded, one of them"]),
    (HEAD + VARIANT + "patches = ['a']\nupstream = 'b'",
     [f"{IN_TARGET}: needs patches, upstream or unneeded, one of them"]),
    (HEAD + VARIANT + "patches = ['a']\nversoins = ''",
     [f'{IN_TARGET}.versoins: unknown key; did you mean "versions"?']),
    (HEAD + VARIANT.replace('">=1"', '"1.0"') + "patches = ['a']",
     [f'{IN_TARGET}.versions: "1.0" is no PEP 440 version specifier; did you mean "==1.0"?']),
    (HEAD + VARIANT.replace('">=1"', '"~=1"') + "patches = ['a']",
     [f'{IN_TARGET}.versions: "~=1" is no PEP 440 version specifier']),
    (HEAD + VARIANT.replace('versions = ">=1"', "") + "patches = ['a']",
     [f"{IN_TARGET}.versions: is missing; it must be a string"]),
    (HEAD + VARIANT + "patches = []", [f"{IN_TARGET}.patches: must not be empty"]),
    (HEAD + VARIANT + "patches = ['a', 'a']", [f'{IN_TARGET}.patches[1]: "a" stands twice']),
    (HEAD + VARIANT + "patches = ['a', 'b', '../c']",
     [f"{IN_TARGET}.patches[2]: \"../c\" must be a plain path, without '', '.' and '..' in it"]),
    (HEAD + VARIANT + "patches = ['/c']",
     [f'{IN_TARGET}.patches[0]: "/c" is absolute; it must be relative']),
    (HEAD + VARIANT + "patches = ['a\\c']",
     [f'{IN_TARGET}.patches[0]: "a\\\\c" has a backslash; folders are parted by /']),
    (HEAD + VARIANT + 'patches = ["a\\tc"]',
     [f'{IN_TARGET}.patches[0]: "a\\tc" holds a control character']),
    (HEAD + VARIANT + "patches = ['a']\nstrip = -1", [f"{IN_TARGET}.strip: must not be negative"]),
    (HEAD + VARIANT + "patches = ['a']\nstrip = true",
     [f"{IN_TARGET}.strip: must be an integer, not true or false"]),
    (HEAD + VARIANT + "upstream = 'b'\nstrip = 1",
     [f"{IN_TARGET}.strip: has no meaning without patches"]),
    (HEAD + VARIANT + "upstream = ' '", [f"{IN_TARGET}.upstream: must not be empty"]),
    # Assertions.
    (HEAD + "[[assert]]\ntext = 'x'",
     ["assert[0].distribution: is missing; it must be a string",
      "assert[0].file: is missing; it must be a string"]),
    (HEAD + ASSERT,
     [ONE_KIND]),
    (HEAD + ASSERT + "count = 1", [ONE_KIND]),
    (HEAD + ASSERT + "text = 'x'\npattern = 'x'",
     [f"{ONE_KIND}; it has pattern and text"]),
    (HEAD + ASSERT + "pattern = '('",
     [f'assert[0].pattern: "(" is no regular expression: {UNCLOSED}']),
    (HEAD + ASSERT + "pattern = ''", ["assert[0].pattern: must not be empty"]),
    (HEAD + ASSERT + "text = ''", ["assert[0].text: must not be empty"]),
    (HEAD + ASSERT + "text = 'x'\ncount = 1\nmin = 1", ["assert[0].count: excludes min"]),
    (HEAD + ASSERT + "text = 'x'\ncount = 1\nmax = 1\nabsent = true",
     ["assert[0].count: excludes absent and max"]),
    (HEAD + ASSERT + "text = 'x'\nabsent = true\nmin = 1", ["assert[0].absent: excludes min"]),
    (HEAD + ASSERT + "text = 'x'\nabsent = false",
     ["assert[0].absent: can only be true; leave it out otherwise"]),
    (HEAD + ASSERT + "text = 'x'\nmin = 3\nmax = 2", ["assert[0].min: 3 is more than max, 2"]),
    (HEAD + ASSERT + "text = 'x'\nmin = 0",
     ["assert[0].min: 0 without max is an assertion that cannot fail"]),
    (HEAD + ASSERT + "text = 'x'\ncount = -1", ["assert[0].count: must not be negative"]),
    (HEAD + ASSERT + "text = 'x'\nmin = true",
     ["assert[0].min: must be an integer, not true or false"]),
    (HEAD + ASSERT + "text = 'x'\nin = 'comment'",
     ['assert[0].in: must be "code" or "text", not "comment"']),
    (HEAD + ASSERT + "text = 'x'\nwithin = 'a.def'",
     ['assert[0].within: "a.def" is no dotted Python name']),
    (HEAD + ASSERT + "text = 'x'\nwithin = 'a..b'",
     ['assert[0].within: "a..b" is no dotted Python name']),
    (HEAD + ASSERT + "text = 'x'\nversions = '=>1'",
     ['assert[0].versions: "=>1" is no PEP 440 version specifier']),
    (HEAD + ASSERT + "text = 'x'\nmessage = 1",
     ["assert[0].message: must be a string, not an integer"]),
    (HEAD + ASSERT.replace("six.py", "a.cu") + "text = 'x'\nin = 'code'\nwithin = 'f'",
     ["assert[0].within: is for Python files only",
      'assert[0].in: "code" is for Python files only']),
    (HEAD + ASSERT.replace("six.py", "a.cu") + "defined = ['x']",
     ["assert[0].defined: is for Python files only"]),
    (HEAD + ASSERT.replace("six.py", "a.cu") + "literal = { name = 'A', has = [1] }",
     ["assert[0].literal: is for Python files only"]),
    (HEAD + ASSERT.replace("six.py", "a.cu") + "condition = { test = 'a', is = true }",
     ["assert[0].condition: is for Python files only"]),
    (HEAD + ASSERT + "defined = ['x']\nin = 'text'",
     ['assert[0].in: "text" has no meaning for what is judged on the syntax tree']),
    (HEAD + ASSERT + "defined = ['x']\ncount = 1",
     ["assert[0].count: is for pattern and text only"]),
    (HEAD + ASSERT + "literal = { name = 'A', has = [1] }\nabsent = true",
     ["assert[0].absent: is for pattern and text only"]),
    (HEAD + ASSERT + "condition = { test = 'a', is = true }\nmin = 1\nmax = 2",
     ["assert[0].min: is for pattern and text only",
      "assert[0].max: is for pattern and text only"]),
    (HEAD + ASSERT + "defined = []", ["assert[0].defined: must not be empty"]),
    (HEAD + ASSERT + "defined = ['x', '1']",
     ['assert[0].defined[1]: "1" is no dotted Python name']),
    (HEAD + ASSERT + "literal = 3", ["assert[0].literal: must be a table, not an integer"]),
    (HEAD + ASSERT + "literal = {}",
     ["assert[0].literal.name: is missing; it must be a string",
      "assert[0].literal.has: is missing; it must be an array"]),
    (HEAD + ASSERT + "literal = { name = 'A', has = [] }",
     ["assert[0].literal.has: must not be empty"]),
    (HEAD + ASSERT + "literal = { name = 'A B', has = [1, nan, {}, [[inf]]] }",
     ['assert[0].literal.name: "A B" is no dotted Python name',
      "assert[0].literal.has[1]: must be finite",
      f"assert[0].literal.has[2]: {PLAIN}, not a table",
      "assert[0].literal.has[3]: must be finite"]),
    (HEAD + ASSERT + "condition = { tests = 'a', is = true }",
     ['assert[0].condition.tests: unknown key; did you mean "test"?',
      "assert[0].condition.test: is missing; it must be a string"]),
    (HEAD + ASSERT + "condition = { test = 'a' }",
     ["assert[0].condition.is: is missing; it must be true or false"]),
    (HEAD + ASSERT + "condition = { test = 'a', is = 1 }",
     ["assert[0].condition.is: must be true or false, not an integer"]),
    (HEAD + ASSERT + "condition = { test = 'a', is = true, given = 1 }",
     ["assert[0].condition.given: must be a table, not an integer"]),
    (HEAD + ASSERT + "condition = { test = 'a', is = true, given = { x = 10:00:00 } }",
     [f"assert[0].condition.given.x: {PLAIN}, not a date or time"]),
    # Profile and caches.
    (HEAD + "profile = []", ["profile: must be a table, not an array"]),
    (HEAD + '[profile]\nenv = { A = 1, B = "x\\u0000", "A=B" = "", 3 = 3 }',
     ["profile.env.A: must be a string, not an integer",
      "profile.env.B: must not hold a NUL",
      'profile.env."A=B": is no name of an environment variable',
      "profile.env.3: is no name of an environment variable"]),
    (HEAD + '[profile]\nenv = { "A-B" = "\\u0000" }',
     ['profile.env.A-B: is no name of an environment variable']),
    (HEAD + "[profile]\nenv = []", ["profile.env: must be a table, not an array"]),
    (HEAD + '[profile]\nargs = ["a", "\\u0000", 3]',
     ["profile.args[1]: must not hold a NUL",
      "profile.args[2]: must be a string, not an integer"]),
    (HEAD + "[[profile.variant]]\ndistribution = 'six'\nversions = ''",
     ["profile.variant[0]: needs env or args"]),
    (HEAD + "[[profile.variant]]\nargs = []",
     ["profile.variant[0].distribution: is missing; it must be a string",
      "profile.variant[0].versions: is missing; it must be a string"]),
    (HEAD + "caches = []", ["caches: must be a table, not an array"]),
    (HEAD + "[caches]\ntriton = 'x'",
     ["caches.triton: must be an array of names, and not empty"]),
    (HEAD + "[caches]\ntriton = []", ["caches.triton: must be an array of names, and not empty"]),
    (HEAD + "[caches]\nflashinfer = ['x']",
     ['caches.flashinfer: no such cache is known; did you mean "flashinfer-jit"?']),
    (HEAD + "[caches]\n'J T' = ['x']",
     ['caches."J T": no such cache is known; known here: ' + ", ".join(CACHES)]),
    (HEAD + '[caches]\ntriton = ["a/b", "..", "", "o k", "*", "a\\\\b", 3, "\\u001f"]',
     [f"caches.triton[{n}]: {what} is no name of a file or folder"
      for n, what in ((0, '"a/b"'), (1, '".."'), (2, '""'), (4, '"*"'), (5, '"a\\\\b"'),
                      (6, "an integer"), (7, '"\\u001f"'))]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), REFUSED)
def test_each_problem_has_its_key_path(text: str, expected: list[str]) -> None:
    assert problems(text) == expected


def test_all_problems_are_reported_at_once() -> None:
    text = """
schema = 1
name = "demo"
version = "x"
colour = "red"
[[target]]
distribution = "six"
[[target.variant]]
versions = ">=1"
patches = ["/a"]
[[target.variant]]
versions = "nope"
patches = ["b"]
[[assert]]
distribution = "six"
file = "../six.py"
pattern = "["
"""
    assert [line.split(":")[0] for line in problems(text)] == [
        "colour",
        "version",
        "target[0].variant[0].patches[0]",
        "target[0].variant[1].versions",
        "assert[0].file",
        "assert[0].pattern",
    ]


@pytest.mark.parametrize(
    ("text", "line", "place", "words"),
    [
        ("schema = 1\nname = \n", 2, "line 2, column 8: ", "Invalid value"),
        ("a = 1\na = 2\n", 2, "line 2, column 6: ", "Cannot overwrite a value"),
        ("schema = 1\n[", 2, "line 2, column 2: ", "Invalid initial character for a key part"),
    ],
)
def test_a_syntax_error_has_line_and_column(text: str, line: int, place: str, words: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(text)
    error = caught.value
    assert error.message == "manifests/demo.toml: 1 problem"
    assert error.line == line
    assert error.detail == (place + words,)


def test_bytes_that_are_no_utf8_have_line_and_column() -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(b'schema = 1\nname = "\xe4"', "demo")
    assert caught.value.detail == ("line 2, column 9: not UTF-8: byte 0xe4",)
    assert caught.value.line == 2
    with pytest.raises(ManifestError) as caught:
        parse_manifest(b"\xff\xfes\0", "demo")
    assert caught.value.detail == ("line 1, column 1: not UTF-8: byte 0xff",)


def test_a_byte_order_mark_is_named() -> None:
    (line,) = problems("\ufeff" + HEAD)
    assert line == "line 1, column 1: a byte-order mark: save the file as UTF-8 without one"


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 5000 + "]" * 5000, "a" + ".a" * 5000 + " = 1", "a = " + "9" * 5000],
    ids=["arrays", "keys", "digits"],
)
def test_what_tomli_gives_up_on_is_a_problem_of_the_manifest(text: str) -> None:
    found = problems(text)
    assert found[0].startswith(("not readable as TOML: ", "schema: ", "a: "))


def test_a_newer_schema_is_the_only_problem_told() -> None:
    found = problems('schema = 2\nnew = 1\nname = 3\n[target]\nx = "y"')
    assert found == ["schema: 2 was made for a newer patchkit; this one reads 1"]


def test_messages_hold_nothing_that_a_terminal_obeys_and_stay_short() -> None:
    (line,) = problems(HEAD + 'conflicts = ["\\u001b]0;x\\u0007\\u009b"]')
    assert line.isprintable()
    (line,) = problems(HEAD + f'conflicts = ["{"A" * 10_000}"]')
    assert len(line) < 200 and "…" in line
    with pytest.raises(ManifestError) as caught:
        parse_manifest(b"", "a\x1bb")
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    "path",
    ["/a", "a//b", "a/", "./a", "a/./b", "..", "a/../b", "", "a\\b", "a\tb", "a\x7f", "C:\\a"],
)
@pytest.mark.parametrize("place", ["file", "patches", "lock"])
def test_paths_that_lead_anywhere_else_are_refused(path: str, place: str) -> None:
    quoted = json.dumps(path).replace("\x7f", "\\u007f")
    lock = None
    text = HEAD + ASSERT + "text = 'x'"
    if place == "file":
        text = f"{HEAD}[[assert]]\ndistribution = 'six'\nfile = {quoted}\ntext = 'x'"
    elif place == "patches":
        text = f"{HEAD}{VARIANT}patches = [{quoted}]"
    else:
        lock = f'schema = 1\n[patches]\n{quoted} = "{"0" * 64}"'
    assert len(problems(text, lock)) == 1


@pytest.mark.parametrize("path", ["a", "a/b", "..a/b..", "a b", "ü/…", ".hidden", "-x", "~/a"])
def test_paths_that_stay_inside_are_read(path: str) -> None:
    text = f"{HEAD}{VARIANT}patches = [{json.dumps(path, ensure_ascii=False)}]"
    assert parse(text).targets[0].variants[0].patches == (path,)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("a and", "is no Python expression: "),
        ("a = 1", "is no Python expression: "),
        ("", "is no Python expression: "),
        ("a\\u0000b", "must not hold a NUL"),
        ("a; b", "is no Python expression: "),
        ("\\\\d' + '\\\\d", "is no Python expression: "),
        ("'\\\\d'", "is no Python expression: "),
        ("(" * 5000 + ")" * 5000, "is no Python expression: "),
        ("-" * 100_000 + "1", "is no Python expression: nested too deeply"),
    ],
)
def test_a_condition_must_be_a_python_expression(expression: str, words: str) -> None:
    text = f'{HEAD}{ASSERT}condition = {{ test = "{expression}", is = true }}'
    (line,) = problems(text)
    assert line.startswith("assert[0].condition.test: ") and words in line


def test_what_is_given_must_be_a_python_expression_too() -> None:
    text = f"{HEAD}{ASSERT}condition = {{ test = 'a', is = true, given = {{ 'b(' = true }} }}"
    (line,) = problems(text)
    assert line.startswith('assert[0].condition.given."b(": "b(" is no Python expression: ')
    nul = text.replace("'b('", '"\\u0000"')
    assert len(problems(nul)) == 1


def test_a_condition_may_stand_on_several_lines() -> None:
    text = f'{HEAD}{ASSERT}condition = {{ test = """\n  (a\n  and b)\n""", is = true }}'
    condition = parse(text).asserts[0].condition
    assert condition is not None and condition.test == "  (a\n  and b)\n"


@pytest.mark.parametrize(
    "pattern",
    ["(", "[[a]", "a{99999999999}", "(?P<a>x)(?P<a>y)", "*a", "(" * 3000 + ")" * 3000, "\\8"],
)
def test_a_pattern_must_compile_without_a_warning(pattern: str) -> None:
    (line,) = problems(f"{HEAD}{ASSERT}pattern = '{pattern}'")
    assert line.startswith("assert[0].pattern: ") and "is no regular expression: " in line


@pytest.mark.parametrize("key", ["pattern = '[[a]'", "condition = { test = '\"\\d\"', is = true }"])
def test_what_python_warns_of_is_refused_whatever_the_filters_are(key: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(problems(HEAD + ASSERT + key)) == 1


@pytest.mark.parametrize("name", ["demo.patch", "demo.diff", ".demo", "-demo", "Demo", "dé", "a/b"])
def test_names_that_no_bundle_may_have(name: str) -> None:
    assert not is_name(name)
    text = f"schema = 1\nname = {json.dumps(name, ensure_ascii=False)}\nversion = '1'"
    (line,) = problems(text, name=name)
    assert line.startswith("name: ")


@pytest.mark.parametrize("name", ["a", "0", "a.b-c_d", "demo.patches", "patch", "diff", "a.."])
def test_names_that_a_bundle_may_have(name: str) -> None:
    assert is_name(name)
    assert parse(f'schema = 1\nname = "{name}"\nversion = "1"', name=name).name == name


# -- the lock ---------------------------------------------------------------------------

DIGEST = "0123456789abcdef" * 4


def test_a_lock_is_read_in_sorted_order() -> None:
    lock = f'schema = 1\n[patches]\n"b" = "{DIGEST}"\n"a/c" = "{DIGEST}"\n'
    assert parse(HEAD, lock).lock == (("a/c", DIGEST), ("b", DIGEST))
    assert parse(HEAD, "schema = 1\n[patches]").lock == ()


@pytest.mark.parametrize(
    ("lock", "expected"),
    [
        ("", ["demo.lock: schema: is missing; it must be an integer",
              "demo.lock: patches: is missing; it must be a table"]),
        ("schema = 1\npatches = 3", ["demo.lock: patches: must be a table, not an integer"]),
        ("schema = 1\npatch = {}", ['demo.lock: patch: unknown key; did you mean "patches"?',
                                    "demo.lock: patches: is missing; it must be a table"]),
        ("schema = 9\n[patches]",
         ["demo.lock: schema: 9 was made for a newer patchkit; this one reads 1"]),
        ("schema = 1\n[patches]\na = 3",
         ['demo.lock: patches.a: must be a SHA-256 in small hexadecimal digits']),
        ("schema = 1\n[patches]\n'/a' = 3",
         ['demo.lock: patches."/a": "/a" is absolute; it must be relative']),
        (f"schema = 1\n[patches]\na = '{DIGEST.upper()}'\nb = '{DIGEST[1:]}'",
         ['demo.lock: patches.a: must be a SHA-256 in small hexadecimal digits',
          'demo.lock: patches.b: must be a SHA-256 in small hexadecimal digits']),
    ],
)  # fmt: skip
def test_problems_of_a_lock_have_its_name(lock: str, expected: list[str]) -> None:
    assert problems(HEAD, lock) == expected


def test_problems_of_manifest_and_lock_come_together() -> None:
    found = problems(HEAD + "sumary = ''", "schema = 1")
    assert [line.split(": ")[0] for line in found] == ["sumary", "demo.lock"]


def test_a_lock_that_is_no_toml_is_named() -> None:
    with pytest.raises(ManifestError) as caught:
        parse(HEAD, "schema = 1\n<<<<<<< HEAD\n")
    assert caught.value.message == "manifests/demo.lock: 1 problem"
    assert caught.value.detail[0].startswith("line 2, column 1: ")


def test_a_lock_file_looks_like_this() -> None:
    assert render_lock({"b": "1" * 64, "a/ü.patch": "0" * 64}).decode() == (
        "# The SHA-256 of each patch file.  Written by: patchkit lint --update-lock\n"
        "schema = 1\n\n[patches]\n"
        f'"a/ü.patch" = "{"0" * 64}"\n"b" = "{"1" * 64}"\n'
    )


plain_paths = st.lists(
    st.text(
        st.characters(exclude_characters="/\\\x7f", exclude_categories=["Cs"], min_codepoint=32),
        min_size=1,
    ).filter(lambda part: part not in (".", "..")),
    min_size=1,
    max_size=3,
).map("/".join)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)


@given(st.dictionaries(plain_paths, digests, max_size=5), st.randoms())
def test_locks_are_read_as_they_were_written(patches: dict[str, str], random: Any) -> None:
    lock = render_lock(patches)
    bundle = parse_manifest(HEAD.encode(), "demo", lock)
    assert bundle.lock == tuple(sorted(patches.items()))
    shuffled = list(patches.items())
    random.shuffle(shuffled)
    assert render_lock(dict(shuffled)) == lock


# -- versions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("specifiers", "version", "expected"),
    [
        (">=0.5.8,<0.5.9", "0.5.8", True),
        (">=0.5.8,<0.5.9", "0.5.8.post1", True),
        (">=0.5.8,<0.5.9", "0.5.9", False),
        (">=0.5.8,<0.5.9", "0.5.8+cu128", True),
        (">=0.5.8", "0.5.10rc0", True),
        ("<0.5.9", "0.5.9rc1", False),
        (">=0.5.9", "0.5.9.dev3+gabc", False),
        ("==0.5.9", "0.5.9+local", True),
        ("==0.5.*", "0.5.23", True),
        ("", "0.5.9", True),
        ("", "unknown", True),
        ("", "", True),
        (">=0", "unknown", False),
        ("===Unknown", "uNKNOWN", True),
        ("===unknown,>=0", "unknown", False),
        ("===unknown", "known", False),
        (">=1", "9" * 5000 + "x", False),
        ("!=1", "nightly-2026-02-10", False),
    ],
)
def test_which_versions_are_in_a_range(specifiers: str, version: str, expected: bool) -> None:
    assert version_matches(specifiers, version) is expected


def test_specifiers_that_are_none_are_an_error() -> None:
    with pytest.raises(ManifestError, match=r'"1\.0" is no PEP 440 version specifier'):
        version_matches("1.0", "1.0")


versions = st.builds(
    lambda release, end: ".".join(map(str, release)) + end,
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.sampled_from(["", "a1", "rc1", ".post1", ".dev1", "+l", ".post1.dev2"]),
)
specifier_sets = st.lists(
    st.builds(
        "{}{}".format, st.sampled_from([">=", "<=", "<", ">", "==", "!="]),
        versions.filter(lambda text: "+" not in text),
    ),
    max_size=3,
).map(",".join)  # fmt: skip


@given(specifier_sets, versions)
def test_a_range_is_what_packaging_says(specifiers: str, version: str) -> None:
    expected = SpecifierSet(specifiers).contains(Version(version), prereleases=True)
    assert version_matches(specifiers, version) is expected


@given(specifier_sets, st.text(max_size=20))
def test_no_version_string_is_too_odd(specifiers: str, version: str) -> None:
    assert version_matches(specifiers, version) in (True, False)


TARGET = Target(
    "six",
    (Variant(">=1,<2", ("a",)), Variant(">=1.5,<3", ("b",)), Variant(">=3", (), None, "merged")),
)


def test_a_release_selects_its_variant() -> None:
    assert select_variant(TARGET, "1.1") is TARGET.variants[0]
    assert select_variant(TARGET, "2.1") is TARGET.variants[1]
    assert select_variant(TARGET, "3") is TARGET.variants[2]
    assert select_variant(TARGET, "0.1") is None
    assert select_variant(TARGET, "unknown") is None


def test_two_variants_for_one_release_are_an_error() -> None:
    with pytest.raises(ManifestError) as caught:
        select_variant(TARGET, "1.5")
    error = caught.value
    assert error.code == "variants-overlap"
    assert error.message == (
        '2 variants match six 1.5: versions = ">=1,<2" and versions = ">=1.5,<3"'
    )
    assert error.hint


def test_the_first_profile_variant_that_matches_replaces_what_it_gives() -> None:
    bundle = parse(FULL)
    env = {"NCCL_ALGO": "Ring", "EMPTY": ""}
    args = ("--cuda-graph-max-bs", "128", "")
    assert profile_for(bundle, {}) == (env, args)
    assert profile_for(bundle, {"sglang": "0.5.12"}) == (env, args)
    assert profile_for(bundle, {"other": "0.5.14"}) == (env, args)
    assert profile_for(bundle, {"sglang": "0.5.13"}) == ({}, args)
    assert profile_for(bundle, {"sglang": "0.5.14", "other": "1"}) == (
        env,
        ("--cuda-graph-max-bs-decode", "128"),
    )
    assert profile_for(parse(HEAD), {"sglang": "1"}) == ({}, ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", ("a", "")),
        ("a>=1", ("a", ">=1")),
        ("a >= 1, <2 ", ("a", ">= 1, <2")),
        ("a.b-c==1.*", ("a.b-c", "==1.*")),
        ("a~=1.0", ("a", "~=1.0")),
        ("a!=1", ("a", "!=1")),
        ("a b", ("a", "b")),
        ("", ("", "")),
    ],
)
def test_a_requirement_is_a_name_and_specifiers(text: str, expected: tuple[str, str]) -> None:
    assert split_requirement(text) == expected


@given(st.text(string.ascii_letters + string.digits + "-_.", max_size=20))
def test_normal_names_stay_as_they_are(name: str) -> None:
    once = normalise(name)
    assert normalise(once) == once
    assert normalise(name.upper()) == once
    assert normalise(name.replace("-", "_")) == once


# -- anything at all --------------------------------------------------------------------


def toml(value: object) -> str:
    """A value as TOML, on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml(key)} = {toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[ " + ", ".join(map(toml, value)) + " ]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def document(values: Mapping[str, object]) -> str:
    return "".join(f"{toml(key)} = {toml(value)}\n" for key, value in values.items())


text_values = st.one_of(
    st.sampled_from(
        [
            "demo", "1.0", ">=1", ">=1,<2", "six", "six.py", "a.cu", "demo/a.patch", "code", "text",
            "../x", "a.b", "x(", "not a", "", "PATH", "flashinfer-jit",
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)  # fmt: skip
scalars = st.one_of(text_values, st.booleans(), st.integers(-3, 3), st.floats(), st.just(2**70))
all_keys = sorted({key for keys in KEYS.values() for key in keys})
anything: st.SearchStrategy[Any] = st.deferred(
    lambda: st.recursive(
        scalars,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(all_keys) | text_values, inner, max_size=4),
        ),
        max_leaves=12,
    )
)


def tables(place: str, values: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """A table with the keys of that place: mostly values of the right type."""
    optional = {key: values.get(key, text_values) | anything for key in KEYS[place]}
    return st.fixed_dictionaries({}, optional=optional)


many_text = st.lists(text_values, max_size=2)
manifests = st.builds(
    lambda head, rest: {**head, **rest},
    st.sampled_from([{"schema": 1, "name": "demo", "version": "1"}, {}]),
    tables(
        "",
        {
            "schema": st.just(1),
            "name": st.just("demo"),
            "version": st.just("1.0"),
            "requires": many_text,
            "conflicts": many_text,
            "target": st.lists(
                tables(
                    "target",
                    {
                        "required": st.booleans(),
                        "variant": st.lists(
                            tables(
                                "target.variant", {"strip": st.integers(0, 2), "patches": many_text}
                            ),
                            max_size=2,
                        ),
                    },
                ),
                max_size=2,
            ),
            "assert": st.lists(
                tables(
                    "assert",
                    {
                        "literal": tables("assert.literal", {"has": st.lists(scalars)}),
                        "condition": tables(
                            "assert.condition",
                            {"given": st.dictionaries(text_values, scalars), "is": st.booleans()},
                        ),
                        "defined": many_text,
                        "count": st.integers(0, 2),
                        "min": st.integers(0, 2),
                        "max": st.integers(0, 2),
                        "absent": st.just(True),
                    },
                ),
                max_size=2,
            ),
            "profile": tables(
                "profile",
                {
                    "env": st.dictionaries(text_values, text_values),
                    "args": many_text,
                    "variant": st.lists(
                        tables(
                            "profile.variant",
                            {"env": st.dictionaries(text_values, text_values), "args": many_text},
                        ),
                        max_size=2,
                    ),
                },
            ),
            "caches": st.dictionaries(text_values, many_text),
        },
    ),
)


@st.composite
def any_manifests(draw: st.DrawFn) -> dict[str, object]:
    """By a function, as hypothesis would else write the whole strategy into its messages."""
    return dict(draw(manifests))


def read_or_refused(data: bytes, lock: bytes | None = None) -> Bundle | None:
    """The bundle, or None; anything but a ManifestError that says something fails."""
    try:
        return parse_manifest(data, "demo", lock)
    except ManifestError as caught:
        error = caught
    assert error.detail and all(line.isprintable() for line in error.detail), error.detail
    count = len(error.detail)
    words = rf"manifests/demo\.(toml|lock): {count} problem{'s' * (count > 1)}"
    assert re.fullmatch(words, error.message)
    return None


@given(st.binary(max_size=200), st.none() | st.binary(max_size=50))
@example(b"", b"")
@example(b"\xff", None)
def test_any_bytes_are_read_or_refused(data: bytes, lock: bytes | None) -> None:
    read_or_refused(data, lock)
    read_or_refused(HEAD.encode(), data)


@given(any_manifests())
def test_any_manifest_is_read_or_refused(values: dict[str, object]) -> None:
    bundle = read_or_refused(document(values).encode())
    if bundle is not None:
        assert not schema_problems(values)
        assert bundle.name == "demo"


@given(anything)
def test_any_lock_is_read_or_refused(value: object) -> None:
    read_or_refused(HEAD.encode(), document({"schema": 1, "patches": value}).encode())


@given(st.data())
def test_a_damaged_manifest_is_read_or_refused(data: st.DataObject) -> None:
    text = FULL.encode()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 12))
        text = text[:start] + data.draw(st.binary(max_size=6)) + text[end:]
    read_or_refused(text)


def set_at(values: dict[str, Any], path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(values))
    place: Any = copy
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return copy


def leaves(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The path of every value in a manifest, tables and arrays too."""
    items: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [found for key, one in items for found in ((*path, key), *leaves(one, (*path, key)))]


def full_values() -> dict[str, Any]:
    import tomli

    return tomli.loads(FULL)


FREE = ("given", "has")


@pytest.mark.parametrize("path", leaves(full_values()), ids=lambda p: ".".join(map(str, p)))
def test_every_value_of_another_type_is_refused(path: tuple[str | int, ...]) -> None:
    original: Any = full_values()
    for part in path:
        original = original[part]
    others: list[Any] = ["\0", True, -7, 1.5, [], {}, [[]], {"x": {}}]
    for value in others:
        free = any(part in FREE for part in path[:-1])
        if type(value) is type(original) or (free and value not in ({}, {"x": {}})):
            continue
        changed = set_at(full_values(), path, value)
        assert read_or_refused(document(changed).encode()) is None, (path, value)


@pytest.mark.parametrize("place", [place for place in KEYS if not place.startswith("lock")])
def test_a_key_more_is_refused_at_every_place(place: str) -> None:
    values: Any = full_values()
    table = values
    for part in filter(None, place.split(".")):
        table = table[part]
        if isinstance(table, list):
            kind = place.rpartition(".")[2]
            table = next((one for one in table if kind in one), table[0])
    table["novelty"] = 1
    assert any("novelty: unknown key" in line for line in problems(document(values)))
    assert schema_problems(values)


# -- the schema for editors -------------------------------------------------------------

CHECKS: dict[str, Callable[[Any, Any, Any], bool]] = {
    "type": lambda value, wanted, _: any(
        {
            "string": isinstance(value, str),
            "boolean": isinstance(value, bool),
            "integer": isinstance(value, int) and not isinstance(value, bool),
            "number": isinstance(value, (int, float)) and not isinstance(value, bool),
            "array": isinstance(value, list),
            "object": isinstance(value, dict),
        }[kind]
        for kind in ([wanted] if isinstance(wanted, str) else wanted)
    ),
    "const": lambda value, wanted, _: type(value) is type(wanted) and value == wanted,
    "enum": lambda value, wanted, _: value in wanted,
    "pattern": lambda value, wanted, _: re.search(wanted, value) is not None,
    "minLength": lambda value, wanted, _: len(value) >= wanted,
    "minimum": lambda value, wanted, _: value >= wanted,
    "minItems": lambda value, wanted, _: len(value) >= wanted,
    "uniqueItems": lambda value, wanted, _: len(set(map(repr, value))) == len(value),
    "required": lambda value, wanted, _: set(wanted) <= set(value),
    "items": lambda value, wanted, _: all(valid(one, wanted) for one in value),
    "propertyNames": lambda value, wanted, _: all(valid(key, wanted) for key in value),
    "properties": lambda value, wanted, _: all(
        valid(value[key], one) for key, one in wanted.items() if key in value
    ),
    "additionalProperties": lambda value, wanted, schema: all(
        wanted and valid(value[key], wanted)
        for key in value
        if key not in schema.get("properties", {})
    ),
    "oneOf": lambda value, wanted, _: sum(valid(value, one) for one in wanted) == 1,
    "anyOf": lambda value, wanted, _: any(valid(value, one) for one in wanted),
}
NOTES = {"$schema", "title", "description", "default", "format"}


def valid(value: Any, schema: Mapping[str, Any]) -> bool:
    """The part of JSON Schema that ours uses; a word that is not known here fails."""
    if "type" in schema and not CHECKS["type"](value, schema["type"], schema):
        return False
    return all(
        CHECKS[word](value, wanted, schema)
        for word, wanted in schema.items()
        if word not in NOTES and word != "type"
    )


def schema_problems(values: object) -> bool:
    return not valid(values, manifest_schema())


def test_the_schema_in_docs_is_the_one_made_here() -> None:
    file = ROOT / "docs" / "manifest.schema.json"
    text = json.dumps(manifest_schema(), indent=2, ensure_ascii=False) + "\n"
    assert file.read_text(encoding="utf-8") == text


def test_the_schema_knows_every_key_and_no_other() -> None:
    places: dict[str, tuple[str, ...]] = {}

    def visit(schema: Mapping[str, Any], place: str) -> None:
        places[place] = tuple(schema["properties"])
        for key, one in schema["properties"].items():
            table = one.get("items", one)
            if "properties" in table:
                visit(table, f"{place}.{key}".lstrip("."))

    visit(manifest_schema(), "")
    assert places == {place: keys for place, keys in KEYS.items() if not place.startswith("lock")}


def test_the_full_manifest_uses_every_key() -> None:
    used: dict[str, set[str]] = {}

    def visit(value: object, place: str) -> None:
        if isinstance(value, list):
            for one in value:
                visit(one, place)
        elif isinstance(value, dict) and place in KEYS:
            used.setdefault(place, set()).update(value)
            for key, one in value.items():
                visit(one, f"{place}.{key}".lstrip("."))

    visit(full_values(), "")
    visit({"absent": 1}, "assert")  # It excludes the counts that FULL shows.
    assert used == {
        place: set(keys) for place, keys in KEYS.items() if not place.startswith("lock")
    }


def test_the_schema_takes_what_the_parser_takes() -> None:
    assert not schema_problems(full_values())


def test_the_schema_takes_the_shipped_manifests() -> None:
    import tomli

    files = sorted((ROOT / "manifests").glob("*.toml"))
    assert len(files) >= 8
    for file in files:
        assert not schema_problems(tomli.loads(file.read_text(encoding="utf-8"))), file


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), 2),
        (("name",), "Demo"),
        (("name",), "demo.patch"),
        (("summary",), "a\nb"),
        (("requires",), ["a", "a"]),
        (("conflicts", 0), "x.diff"),
        (("target", 0, "distribution"), "-x"),
        (("target", 0, "variant", 0, "upstream"), "also"),
        (("target", 0, "variant", 0, "strip"), -1),
        (("target", 0, "variant", 0, "patches"), []),
        (("target", 0, "variant", 0, "patches", 0), "../a"),
        (("target", 0, "variant", 0, "patches", 0), "/a"),
        (("target", 0, "variant", 0, "patches", 0), "a//b"),
        (("target", 0, "variant", 0, "patches", 0), "a/."),
        (("assert", 0, "file"), "a\\b"),
        (("assert", 0, "text"), "two kinds"),
        (("assert", 0, "in"), "comments"),
        (("assert", 0, "absent"), False),
        (("assert", 0, "count"), -1),
        (("assert", 2, "literal", "has"), []),
        (("profile", "env", "A B"), "x"),
        (("profile", "variant", 0), {"distribution": "six", "versions": ""}),
        (("caches", "flashinfer-jit", 0), "a/b"),
        (("caches", "flashinfer-jit", 0), ".."),
        (("caches", "Up"), ["x"]),
    ],
)
def test_schema_and_parser_refuse_alike(path: tuple[str | int, ...], value: object) -> None:
    changed = set_at(full_values(), path, value)
    assert read_or_refused(document(changed).encode()) is None
    assert schema_problems(changed)


def test_the_module_brings_in_nothing_heavy() -> None:
    """tomli, packaging, unidiff and difflib wait until they are needed."""
    import subprocess
    import sys

    code = (
        "import sys; import patchkit.manifest as m; import patchkit.bundles;"
        "print(*{'tomli', 'packaging', 'difflib', 'unidiff'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
    assert Path(str(manifest.__file__)).exists()
