"""Assertions, judged on small sources and on the real gates of SGLang and FlashInfer."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.assertions import evaluate
from patchkit.assertions.expressions import ancestors, same, shown
from patchkit.assertions.mask import mask
from patchkit.assertions.source import Unreadable
from patchkit.model import Assertion, Condition, Finding, Literal_

ReleaseTree = Callable[[str, str], Path]


def judge(
    source: str | bytes | None,
    *,
    file: str = "pkg/mod.py",
    others: Mapping[str, str | bytes] | None = None,
    **keys: Any,
) -> Finding:
    """The verdict on a source that is indented as the test is."""
    data = dedent(source).encode() if isinstance(source, str) else source
    files = {path: s.encode() if isinstance(s, str) else s for path, s in (others or {}).items()}
    keys.setdefault("scope", "code")
    return evaluate(Assertion("assert[0]", "dist", file, **keys), data, files.get)


def literal(source: str, name: str, *has: object, **keys: Any) -> Finding:
    return judge(source, literal=Literal_(name, has), **keys)


def condition(
    source: str,
    test: str,
    given: Mapping[str, object] | None = None,
    *,
    yields: bool = True,
    **keys: Any,
) -> Finding:
    return judge(source, condition=Condition(test, tuple((given or {}).items()), yields), **keys)


def defined(
    source: str, *names: str, others: Mapping[str, str] | None = None, **keys: Any
) -> Finding:
    return judge(source, defined=names, others=others, **keys)


# -- the mask -----------------------------------------------------------------------------


def visible(text: str) -> str:
    return mask(text).replace("\0", "_")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a = 'b' # c", "a = ___    "),
        ("#", " "),
        ("x#'\ny'#'", "x  \ny___"),
        ("'#'", "___"),
        ('"\\"" a', "____ a"),
        ("'\\\\' a", "____ a"),
        ("'a\\\nb' c", "___\n__ c"),
        ("'''a\nb''' c", "____\n____ c"),
        ("''''a''' b", "________ b"),
        ('"""a"" """ b', "__________ b"),
        ('"""\\"""" b', "________ b"),
        ("'' b", "__ b"),
        ("'' '' ''''''", "__ __ ______"),
        ("rb'\\' x' y", "________ y"),
        ("r'\\\\' y", "_____ y"),
        *((f"{p}'x' y", "_" * (len(p) + 3) + " y") for p in ("r", "B", "bR", "Rb", "u", "U")),
        *((f"{p}'x' y", "_" * (len(p) + 3) + " y") for p in ("f", "F", "fr", "rF", "t", "T")),
        *((f"{p}'x' y", "_" * (len(p) + 3) + " y") for p in ("tr", "Rt")),
        # What stands before a quote and is no prefix.
        ("1if'x'else'y'", "1if___else___"),
        ("xf'{'", "xf___"),
        ("orf'a'", "orf___"),
        ("éf'{'", "éf___"),
        # f-strings: what is in the braces belongs to them, whatever it is.
        ("f'{a}' b", "______ b"),
        ("f'{{' b", "_____ b"),
        ("f'}}' b", "_____ b"),
        ("f'{{{a}}}' b", "__________ b"),
        ("f'{a!r:>{w}}' b", "_____________ b"),
        ("f'{a:{w}{x}}' b", "_____________ b"),
        ("f'{a:%H:%M}' b", "____________ b"),
        ("f'{a != b}' c", "___________ c"),
        ("f'{a=}' c", "_______ c"),
        ("f'{(lambda: 1)()}' c", "__________________ c"),
        ("f'{d[1:2]}' c", "___________ c"),
        ("f'{ {1: 2}[1] }' c", "________________ c"),
        ("f'{a[\"b\"]}' c", "___________ c"),
        ("f'{x:\\'}' c", "_________ c"),
        ("f'\\'{a}' c", "________ c"),
        ("f'\\{a}' c", "_______ c"),
        ("f'\\N{DASH}{a}' c", "______________ c"),
        ("rf'\\N{a}' c", "_________ c"),
        ("rf'\\{a}' c", "________ c"),
        ("rf'\\'' c", "______ c"),
        ("f'''{a}'\n{\nb\n}''' c", "________\n_\n_\n____ c"),
        ("f'''{\na # }'''\n}''' c", "_____\n________\n____ c"),
        ("f'''{a:\n}''' c", "_______\n____ c"),
        ("f'{a:\n}' c", "_____\n__ c"),
        ('f"""{x!r:"}""" c', "______________ c"),
        # PEP 701 (3.12) and PEP 750 (3.14), under every interpreter.
        ("f'{'a'}' c", "________ c"),
        ("f'{f'{f'{a}'}'}' c", "________________ c"),
        ("f'{x['a']:{'>'}{f'{1}'}}' c", "_________________________ c"),
        ("f'{\na # '\n}' c", "___\n_____\n__ c"),
        ("f'{'\\n'.join(a)}' c", "_________________ c"),
        ("t'{a['b']:{c}}' d", "_______________ d"),
        ("f'{'''a\n'''}' c", "_______\n_____ c"),
    ],
)
def test_mask(source: str, expected: str) -> None:
    assert visible(source) == expected


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("a\nx = 'b", 2),
        ("a\nx = 'b\n'", 2),
        ("'''a\n\n", 1),
        ("'a\\'", 1),
        ("f'{a", 1),
        ("f'{a'", 1),
        ("f'a\n'", 1),
        ("f'''a\n", 1),
        ("f'{a:b", 1),
        ("f'{a:b'", 1),
        ("f'{a:b' 'c}'", 1),
        ("f'{a)}'", 1),
        ("f'{(a}'", 1),
        ("f'\\N{a", 1),
        ("f'a\\", 1),
        ("f'{'a", 1),
        ("\n(\n[\n]", 2),
        ("\n)", 2),
        ("(\n]", 2),
        ("f(a[1)", 1),
    ],
)
def test_mask_refuses_what_is_never_closed(source: str, line: int) -> None:
    with pytest.raises(Unreadable) as caught:
        mask(source)
    assert caught.value.line == line
    assert str(line) in caught.value.message


def tokenize_mask(text: str) -> str:
    """The mask by the tokens of this interpreter's own tokenizer."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    out = list(text)
    open_at: list[int] = []
    begin = {getattr(tokenize, name, -1) for name in ("FSTRING_START", "TSTRING_START")}
    end = {getattr(tokenize, name, -1) for name in ("FSTRING_END", "TSTRING_END")}
    for token in tokenize.generate_tokens(io.StringIO(text, newline="\n").readline):
        first = starts[token.start[0] - 1] + token.start[1]
        last = starts[token.end[0] - 1] + token.end[1]
        if token.type in begin:
            open_at.append(first)
        elif token.type in end:
            first = open_at.pop()
            if not open_at:
                out[first:last] = re.sub(r"[^\n]", "\0", text[first:last])
        elif token.type == tokenize.STRING and not open_at:
            out[first:last] = re.sub(r"[^\n]", "\0", text[first:last])
        elif token.type == tokenize.COMMENT and not open_at:
            out[first:last] = " " * (last - first)
    return "".join(out)


def parsed(text: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError):
            return None


def quoted(body: str, prefix: str, quote: str) -> str:
    return f"{prefix}{quote}{body}{quote}"


bodies = st.text(alphabet="ab #{}()\\'\"\n:!N", max_size=8)
strings = st.builds(
    quoted,
    bodies,
    st.sampled_from(["", "r", "b", "Rb", "u", "f", "F", "rf", "fR"]),
    st.sampled_from(["'", '"', "'''", '"""']),
)


def with_fields(expressions: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    field = st.builds(
        lambda e, c, s: "{" + e + c + s + "}",
        expressions,
        st.sampled_from(["", "", "=", "!r"]),
        st.sampled_from(["", "", ":", ":>4", ":{w}", ":{'>'}9", ":#x", ":%H:%M"]),
    )
    pieces = st.lists(st.sampled_from(["a", " ", "{{", "}}", "#", "\\n", "\\N{DASH}"]) | field)
    texts = st.builds(
        quoted,
        pieces.map("".join),
        st.sampled_from(["f", "f", "rf", "F", "t"]),
        st.sampled_from(["'", '"', "'''", '"""']),
    )
    return texts | st.builds("{} + {}".format, expressions, texts) | st.builds("({})".format, texts)


atoms = st.sampled_from(["a", "1", "{1: 2}", "d[1:2]", "(a, b)", "a != b", "'x'", '"x"', "''"])
expressions = st.recursive(atoms | strings, with_fields, max_leaves=6)
lines = st.builds(
    "{}{}{}".format,
    st.sampled_from(["x = ", "", "x = not ", "1if 1else"]),
    expressions,
    st.sampled_from(["", " # c", "  # it's \"", " \\\n", ""]),
)
sources = st.lists(lines, max_size=4).map("\n".join)


@given(sources)
def test_mask_agrees_with_the_tokenizer_on_what_compiles(source: str) -> None:
    if parsed(source) is not None:
        assert mask(source) == tokenize_mask(source)


@given(st.text(alphabet="ab#\\{}()[]'\"\n:!frtN =", max_size=40) | sources)
def test_mask_keeps_length_newlines_and_all_that_it_does_not_blank(source: str) -> None:
    refused: Unreadable | None = None
    try:
        masked = mask(source)
    except Unreadable as error:
        refused = error
        masked = source
    if refused is not None:
        assert parsed(source) is None
        assert 1 <= (refused.line or 0) <= source.count("\n") + 1
    assert len(masked) == len(source)
    assert all(m == s or (m in " \0" and s != "\n") for m, s in zip(masked, source, strict=True))


@given(sources)
def test_masked_code_has_the_same_names(source: str) -> None:
    tree = parsed(source)
    if tree is None or "f" in source.lower():  # whose columns are not told before 3.12
        return
    rows = mask(source).split("\n")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            assert rows[node.lineno - 1][node.col_offset :].startswith(node.id)
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            assert rows[node.lineno - 1][node.col_offset] == "\0"
            assert rows[(node.end_lineno or 0) - 1][(node.end_col_offset or 0) - 1] == "\0"


def test_mask_of_a_real_module_is_the_tokenizer_s(release_tree: ReleaseTree) -> None:
    root = release_tree("sglang", "0.5.9")
    for name in ("srt/server_args.py", "srt/utils/common.py", "srt/layers/communicator.py"):
        text = (root / "sglang" / name).read_text(encoding="utf-8")
        if text.isascii() or sys.version_info[:2] != (3, 12):  # whose columns are wrong then
            assert mask(text) == tokenize_mask(text)


# -- pattern and text ---------------------------------------------------------------------

GATE = """\
# is_sm120_supported() in a comment
def gate():
    "is_sm120_supported() in a docstring"
    return is_sm90_supported() or f"{is_sm120_supported()}"


def other():
    return is_sm120_supported() or is_sm120_supported()
"""


def test_a_pattern_in_code_does_not_see_comments_and_strings() -> None:
    finding = judge(GATE, pattern=r"is_sm120_supported\(\)")
    assert finding == Finding(True, "found 2 (line 8, 8)", 8)


def test_a_pattern_in_text_sees_all() -> None:
    finding = judge(GATE, pattern=r"is_sm120_supported\(\)", scope="text")
    assert finding == Finding(True, "found 5 (line 1, 3, 4, …)", 1)


def test_the_message_does_not_say_where_there_is_nothing_more() -> None:
    finding = judge("hit\nother", text="hit", minimum=2)
    assert finding.message.endswith("found 1 (line 1)")


def test_the_message_says_where_it_was_not_looked_for() -> None:
    finding = judge(GATE, pattern=r"is_sm120_supported\(\)", within="gate")
    assert not finding.ok
    assert finding.line == 2
    assert finding.message == (
        r"expected at least 1 match of pattern 'is_sm120_supported\\(\\)' in gate outside "
        "comments and strings, found none; with comments and strings it is 2 (line 3, 4)"
    )


@pytest.mark.parametrize("text", ["return is", "'no'", "# not"])
def test_no_part_of_a_match_may_stand_in_a_string_or_comment(text: str) -> None:
    source = "x = 'no'  # not\nreturn is_it\n"
    assert judge(source, text=text).ok is (text == "return is")
    assert judge(source, text=text, scope="text").ok


def test_a_match_does_not_run_across_a_string() -> None:
    assert not judge("f(a, 'b', c)", pattern=r"a, [\s\w']+, c").ok
    assert judge("f(a, 'b', c)", pattern=r"a, .+, c").ok


@pytest.mark.parametrize(
    ("minimum", "maximum", "number", "ok", "line", "message"),
    [
        (1, None, 0, False, 1, "expected at least 1 match of text 'x;', found none"),
        (1, None, 1, True, 2, "found 1 (line 2)"),
        (1, None, 3, True, 2, "found 3 (line 2, 3, 4)"),
        (2, 2, 1, False, 2, "expected exactly 2 matches of text 'x;', found 1 (line 2)"),
        (2, 2, 2, True, 2, "found 2 (line 2, 3)"),
        (2, 2, 3, False, 4, "expected exactly 2 matches of text 'x;', found 3 (line 2, 3, 4)"),
        (None, 0, 0, True, None, "found none"),
        (None, 0, 2, False, 2, "expected no match of text 'x;', found 2 (line 2, 3)"),
        (None, 1, 1, True, 2, "found 1 (line 2)"),
        (None, 1, 2, False, 3, "expected at most 1 match of text 'x;', found 2 (line 2, 3)"),
        (0, None, 0, True, None, "found none"),
        (None, None, 0, True, None, "found none"),
        (
            *(2, 3, 4, False, 5),
            (
                "expected at least 2 matches and at most 3 matches of text 'x;', "
                "found 4 (line 2, 3, 4, …)"
            ),
        ),
        (1, 1, 0, False, 1, "expected exactly 1 match of text 'x;', found none"),
    ],
)
def test_counts(
    minimum: int | None, maximum: int | None, number: int, ok: bool, line: int | None, message: str
) -> None:
    finding = judge(
        "\n" + "x;\n" * number, text="x;", minimum=minimum, maximum=maximum, scope="text"
    )
    assert finding == Finding(ok, message, line)


def test_matches_do_not_overlap() -> None:
    assert judge("aaaa", text="aa", minimum=2, maximum=2).ok


def test_text_is_plain_and_patterns_are_not() -> None:
    assert not judge("fx", text="f.").ok
    assert judge("f.", text="f.", scope="text").ok
    assert judge("fx", pattern="f.").ok


def test_anchors_hold_at_every_line_and_dots_do_not_cross_it() -> None:
    assert judge("a\nb\nc", pattern="^b$").ok
    assert not judge("a\nb\nc", pattern="a.b").ok


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "(?P<1>x)", "*"])
def test_a_pattern_that_is_none_is_said_and_not_raised(pattern: str) -> None:
    finding = judge("x", pattern=pattern)
    assert not finding.ok
    assert "is not a regular expression" in finding.message


def test_line_ends_do_not_matter() -> None:
    data = b"a = 1\r\nb = 2\r\nc = 3  # d\r\n"
    for scope in ("code", "text"):
        assert judge(data, pattern="^b = 2$", scope=scope).line == 2
        assert judge(data, text="1\nb", scope=scope).ok
    assert judge(data, file="a.txt", text="1\nb", scope="text").ok
    assert judge(b"a\rb = 1\r", pattern="^b").line == 2
    assert not judge(b"a\rb", file="a.txt", pattern="^b", scope="text").ok


def test_only_a_newline_ends_a_line() -> None:
    source = "a = '\u2028\x0c\x85'\n\x0cdef f():\n    x\n"
    assert judge(source, text="x", within="f").line == 3


def test_bytes_that_are_no_text_can_be_looked_for() -> None:
    finding = judge(b"\xff\xfeabc\n\x00", file="a.bin", pattern="\udcff\udcfeabc$", scope="text")
    assert finding.ok
    assert judge(b"\xff\nabc", file="a.py", text="abc", scope="text").line == 2


def test_the_declared_encoding_counts() -> None:
    data = "# coding: latin-1\nx = é\n".encode("latin-1")
    assert judge(data, text="= é").line == 2
    assert judge(b"\xef\xbb\xbfimport a\n", pattern="^import").ok


@pytest.mark.parametrize(
    ("data", "line", "message"),
    [
        (b"x = 1\ny = 2\nz = '\xe9'\n", 3, "line 3 cannot be decoded as utf-8"),
        (b"# coding: ascii\n\nz = '\xe9'\n", 3, "line 3 cannot be decoded as ascii"),
        (b"# coding: nonsense\n", 1, "cannot be decoded: unknown encoding: nonsense"),
        (b"# coding: rot13\n", 1, "cannot be decoded: 'rot13' is not a text encoding"),
        (b"# coding: utf-7\nx = '+2AA-'", None, "cannot be parsed as Python: 'utf-8' codec can't"),
        (b"z = '\xe9'\n", 1, "cannot be decoded: invalid or missing encoding declaration"),
        (b"\xef\xbb\xbf# coding: latin-1\n", 1, "cannot be decoded: encoding problem"),
        (b"a\nb\0\n", 2, "line 2 holds a null character: not Python source"),
        (b"a\nb = 'c\n", 2, "the string that starts on line 2 is never closed"),
        (b"a\nb = (\n", 2, "the '(' on line 2 is never closed"),
    ],
)
def test_source_that_cannot_be_read(data: bytes, line: int | None, message: str) -> None:
    for _ in "twice, since verdicts are kept":
        finding = judge(data, text="b", within="f" if b"utf-7" in data else None)
        assert not finding.ok
        assert finding.message.startswith(message)
        assert finding.line == line


@pytest.mark.parametrize(
    "keys",
    [
        {"text": "a", "scope": "code"},
        {"text": "a", "scope": "text", "within": "f"},
        {"literal": Literal_("a", (1,))},
        {"condition": Condition("a", (), True)},
        {"defined": ("a",)},
    ],
)
def test_only_text_can_be_asserted_of_other_files(keys: dict[str, Any]) -> None:
    finding = judge("a", file="pkg/kernel.cuh", **keys)
    assert not finding.ok
    assert "pkg/kernel.cuh is not Python source" in finding.message


def test_stubs_are_python() -> None:
    assert judge("def f(): ...  # x", file="a.pyi", pattern="def f").ok
    assert not judge("def f(): ...  # x", file="a.pyi", text="x").ok


def test_a_file_that_is_not_there() -> None:
    for keys in ({"text": "a"}, {"text": "a", "minimum": None, "maximum": 0}):
        assert judge(None, **keys) == Finding(False, "there is no file pkg/mod.py")


def test_an_assertion_that_asserts_nothing() -> None:
    assert judge("a") == Finding(False, "it asserts nothing")


# -- within -------------------------------------------------------------------------------

NESTED = """\
import a

@decorate(hit)
class Outer:
    hit = 1

    @property
    @hit
    def method(self):
        hit
        def inner(): hit
        if x:
            async def other():
                hit
        return 1

if a:
    def twice():
        hit
else:
    def twice():
        hit; hit
try:
    with a:
        for x in y:
            while z:
                def deep(): hit
            else:
                def deep2(): hit
        match a:
            case 1:
                class InMatch: hit = 1
except E:
    def handler(): hit
else:
    def orelse(): hit
finally:
    def final(): hit
hit
"""


@pytest.mark.parametrize(
    ("within", "number", "line"),
    [
        ("Outer", 6, 3),
        ("Outer.method", 4, 8),
        ("Outer.method.inner", 1, 11),
        ("Outer.method.other", 1, 14),
        ("twice", 3, 19),
        *(("deep", 1, 27), ("deep2", 1, 29), ("InMatch", 1, 32), ("handler", 1, 34)),
        *(("orelse", 1, 36), ("final", 1, 38), (None, 16, 3)),
    ],
)
def test_within(within: str | None, number: int, line: int) -> None:
    for scope in ("code", "text"):
        finding = judge(
            NESTED, text="hit", within=within, minimum=number, maximum=number, scope=scope
        )
        assert finding.ok, finding
        assert finding.line == line


@pytest.mark.parametrize(
    ("within", "hint"),
    [
        ("method", "; nearest: Outer.method"),
        ("Outer.metod", "; nearest: Outer.method, Outer.method.other, Outer.method.inner"),
        ("Inner.method", "; nearest: Outer.method"),
        ("zzzzzzzz", ""),
    ],
)
def test_within_what_is_not_there(within: str, hint: str) -> None:
    finding = judge(NESTED, text="hit", within=within)
    assert not finding.ok
    assert finding.message == f"there is no def or class {within} in the file{hint}"


def test_no_more_than_three_names_are_offered() -> None:
    source = "\n".join(f"class C{n}:\n    def f(self): pass" for n in range(5))
    finding = judge(source, text="x", within="D.f")
    assert finding.message.endswith("; nearest: C0.f, C1.f, C2.f")


def test_anchors_at_the_edges_of_a_definition() -> None:
    source = "x = 1\ndef f():\n    return 1\ny = 2\n"
    assert judge(source, pattern=r"\Adef[\s\S]+1\n\Z", within="f").ok
    assert not judge(source, pattern=r"x|y", within="f").ok


def test_source_that_does_not_parse() -> None:
    finding = judge("a = 1\ndef f(:\n  pass\n", text="pass", within="f")
    assert not finding.ok
    assert finding.message.startswith("cannot be parsed as Python: ")
    assert finding.message.endswith("(line 2)")
    assert finding.line == 2


def test_a_long_chain_of_elif() -> None:
    chain = "\n".join(f"elif a == {n}: x = [{n}]" for n in range(1, 1500))
    source = f"from a import a, b\nif a == 0: x = [0]\n{chain}\nelse: x = a or b\n"
    given = {"a == 6": True, "a == 1400": True, "a or b": True}
    assert condition(source, "a == 6", given).ok
    assert "since a == 6 is true" in condition(source, "a == 1400", given).message
    del given["a == 6"]
    assert condition(source, "a == 1400", given).line == 1402
    del given["a == 1400"]
    assert condition(source, "a or b", given).line == 1502
    source = source.replace("elif a == 7:", "elif True:")
    assert condition(source, "a == 6", {"a": 6}).ok
    assert "stands in dead code" in condition(source, "a == 1400").message
    assert "stands in dead code" in condition(source, "a or b").message


def test_warnings_of_the_parser_are_not_printed() -> None:
    assert judge("def f(): return '\\d' is 1\n", text="is", within="f").ok


@pytest.mark.parametrize(
    "source",
    [
        "x = " + "-" * 100_000 + "1",
        "x = " + "a." * 50_000 + "b",
        "def f():\n    return " + "not " * 3_000 + "x",
        "if " + "not " * 2_000 + "x: pass",
        "\n".join("  " * n + "if x:" for n in range(99)) + " y",
    ],
)
@pytest.mark.parametrize(
    "keys",
    [
        {"literal": Literal_("x", (1,))},
        {"condition": Condition("a.b", (), True)},
        {"condition": Condition("not not x", (), True)},
        {"defined": ("a",)},
        {"text": "-", "within": "f"},
        {"text": "-"},
    ],
)
def test_deep_nesting_is_a_verdict_and_no_crash(source: str, keys: dict[str, Any]) -> None:
    assert isinstance(judge(source, **keys), Finding)


# -- literal ------------------------------------------------------------------------------

TABLES = """\
MiB = 1024
TABLE = {9: {2: 64 * MiB}, 10: {}, -1: 0, "s": 1, (1, 2): 3, None: 4}
NAMES: list[str] = ["a", "b", f"{c}", *more, 2.5]
A, (B, C) = [1], ((2,), {3})
D = E = 1, 2
F, *G = [1], [2], [3]
H: list
if (W := [7]):
    pass

class Communicator:
    _WORLD_SIZES = frozenset({9, 10})

    def __init__(self, sizes=(2, 4), *, more=[8], other, none=None):
        self.table = tuple([5])
        self.a.b[1] = [0]
        self.a.b.c: dict = dict({6: 1, **rest})
        run(majors=[9, 10, 12], name="n")(**rest)
        for loop in [1]:
            pass
"""


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("TABLE", (9, 10, -1, "s", (1, 2), None)),
        ("TABLE", ([1, 2],)),
        ("TABLE", ()),
        ("NAMES", ("a", 2.5)),
        *(("A", (1,)), ("B", (2,)), ("C", (3,)), ("D", (1, 2)), ("E", (2,)), ("W", (7,))),
        *(("_WORLD_SIZES", (9, 10)), ("sizes", (2, 4)), ("more", (8,)), ("self.table", (5,))),
        *(("self.a.b.c", (6,)), ("majors", (9, 10, 12))),
    ],
)
def test_literal(name: str, has: tuple[object, ...]) -> None:
    finding = literal(TABLES, name, *has)
    assert finding.ok, finding
    assert finding.line is not None
    assert name.rpartition(".")[2] in TABLES.split("\n")[finding.line - 1]


@pytest.mark.parametrize(
    ("name", "has", "message"),
    [
        ("TABLE", (12,), "TABLE on line 2 does not hold 12: it holds 9, 10, -1, 's', [1, 2], None"),
        ("NAMES", ("c",), "NAMES on line 3 does not hold 'c': it holds 'a', 'b', 2.5"),
        ("F", (1,), "expected a list, tuple, set or dict display for F on line 6, found something"),
        ("G", (2,), "expected a list, tuple, set or dict display for G on line 6, found something"),
        ("H", (1,), "nothing is bound to H in the file"),
        ("table", (5,), "nothing is bound to table in the file; nearest: self.table"),
        ("other", (1,), "nothing is bound to other in the file"),
        ("none", (1,), "expected a list, tuple, set or dict display for none on line 14, found No"),
        ("loop", (1,), "expected a list, tuple, set or dict display for loop on line 19, found so"),
        ("name", ("n",), "expected a list, tuple, set or dict display for name on line 18, found "),
        ("MiB", (1024,), "expected a list, tuple, set or dict display for MiB on line 1, found 10"),
        ("self.a.b", (0,), "nothing is bound to self.a.b in the file; nearest: "),
    ],
)
def test_literal_that_does_not_hold(name: str, has: tuple[object, ...], message: str) -> None:
    finding = literal(TABLES, name, *has)
    assert not finding.ok
    assert finding.message.startswith(message)


@pytest.mark.parametrize(
    ("display", "item"),
    [
        *(("12", "12"), ("1", True), ("True", 1), ("1.0", 1), ("1", 1.0), ("0", False)),
        *(("None", False), ("-True", -1), ("b'a'", "a"), ("(1, 2)", (1,)), ("(1, x)", (1, 2))),
        *(("(1, 2)", (1, "2")), ("+1", 1), ("x", 1), ("-x", -1), ("'12'", 12)),
    ],
)
def test_elements_are_compared_with_their_type(display: str, item: object) -> None:
    assert not literal(f"x = [{display}]", "x", item).ok
    assert not literal(f"x = {{{display}: 1}}", "x", item).ok


@pytest.mark.parametrize(
    "value",
    [
        *("[9, 10] + [12]", "TABLE", "[n for n in (9, 10, 12)]", "list([9, 10, 12], 1)"),
        *("list(x=[12])", "sorted([9, 10, 12])", "a.list([9, 10, 12])", "tuple()"),
        *("[12] if a else [9, 10, 12]", "'9, 10, 12'", "list(list([12]))", "list(*[12])"),
        *("dict([9], x=1)", "a or [9, 10, 12]"),
    ],
)
def test_what_is_no_display_is_refused(value: str) -> None:
    finding = literal(f"x = {value}", "x", 12)
    assert not finding.ok
    assert "expected a list, tuple, set or dict display for x on line 1" in finding.message
    assert value.replace("'", '"')[:6] in finding.message.replace("'", '"')


@pytest.mark.parametrize(
    "second",
    [
        *("x = [1]", "x: list = [1]", "f(x=[1])", "def g(x=[1]): pass", "(x := [1])"),
        *("for x in [[12]]: pass", "import x", "from a import x", "def x(): pass"),
        *("class x: pass", "x += [1]", "with a as x: pass", "def g():\n    global x\n    x = 1"),
        *("async def g():\n    async for x in y: pass", "match a:\n    case x: pass"),
        *("match a:\n    case [*x]: pass", "match a:\n    case {**x}: pass"),
        "async def g():\n    async with a as (b, x): pass",
    ],
)
def test_every_display_of_the_name_must_hold(second: str) -> None:
    finding = literal(f"x = [12]\n{second}\n", "x", 12)
    assert not finding.ok
    assert (finding.line or 0) >= 2
    finding = literal(f"{second}\nx = [12]\n", "x", 12)
    assert not finding.ok


@pytest.mark.parametrize(
    "second",
    [
        *("def g(x): pass", "x: list", "del x", "self.x = [1]", "if False:\n    x = [1]"),
        *("def g():\n    return 1\n    f(x=[1])", "f(y=[1], **x)", "x[1] = [1]", "# x = [1]"),
        *("try: pass\nexcept E as x: pass", "while 0:\n    x = [1]", "x[a], b.x = 1, 2"),
        "lambda x=[1]: 1",
    ],
)
def test_what_binds_no_other_value_has_no_say(second: str) -> None:
    assert literal(f"x = [12]\n{second}\n", "x", 12).ok


def test_a_literal_in_dead_code_is_none() -> None:
    assert not literal("if False:\n    x = [12]\n", "x", 12).ok


def test_literal_within() -> None:
    source = """\
    def a():
        return f(majors=[9, 10])
    def b():
        return f(majors=[9, 10, 12])
    if x:
        def c(): pass
    else:
        def c(): f(majors=[9, 10, 12])
    """
    assert literal(source, "majors", 12, within="b").ok
    assert not literal(source, "majors", 12, within="a").ok
    assert not literal(source, "majors", 12).ok
    assert literal(source, "majors", 12, within="c").ok
    finding = literal(source, "major", 12, within="a")
    assert finding.message == "nothing is bound to major in a; nearest: majors"
    assert finding.line == 1


def test_an_assignment_elsewhere_is_out_of_scope() -> None:
    source = "x = [9]\ndef f(y=[1]):\n    x = [9, 12]\n    return x\nx = [9]\n"
    assert literal(source, "x", 12, within="f").line == 3
    assert not literal(source, "x", 12).ok
    assert literal(source, "y", 1, within="f").line == 2
    assert not literal(source + "def g(): pass\n", "x", 9, within="g").ok


def test_long_displays_are_cut_in_the_message() -> None:
    finding = literal(f"x = {list(range(99))}", "x", 100)
    assert finding.message.endswith("18, 19, …")
    finding = literal("x = [y, (z, 1)]", "x", 100)
    assert finding.message.endswith("it holds […, 1]")
    finding = literal("x = [y, z]", "x", 100)
    assert finding.message.endswith("it holds no constants")


# -- condition: where it is found ----------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        *(
            "if a or b: pass",
            "while a or b: pass",
            "x = a or b",
            "assert a or b",
            "x = not (a or b)",
        ),
        *("x = (a or b) and c", "x = c or a or b", "x = c or a or b or d", "x = (c or a) or b"),
        *("x = a or (b or c)", "f = lambda: a or b", "x = [n for n in y if a or b]", "x += a or b"),
        *("x = 1 if a or b else 2", "x: bool = a or b", "x[a or b] = 1", "for x in a or b: pass"),
        *(
            "with a or b: pass",
            "raise E(a or b)",
            "x = {1: a or b}",
            "x = f(k=a or b)",
            "y.z = a or b",
        ),
        *("class C(metaclass=a or b): pass", "@(a or b)\ndef f(): pass", "x = y[a or b:]"),
        *("match a or b:\n    case 1: pass", "match x:\n    case 1 if a or b: pass"),
        *("def f():\n    yield 1\n    return a or b", "async def f():\n    return await (a or b)"),
        *("if x: pass\nelif a or b: pass", "try: pass\nexcept (a or b): pass", "del x[a or b]"),
        *(
            "def f():\n    x = a or b\n    return x",
            "class C:\n    x = a or b",
            "x = (y := a or b)",
        ),
        *("x = c and (d or (a or b))", "x = (a or b,)", "x = a or b or a or b", "x = a or b or b"),
        *(
            "def f():\n    global x\n    x = a or b",
            "x = True and (a or b)",
            "x = (a or b) if c else d",
            "x = c if d else a or b",
            "x = f'{1}' and (a or b)",
        ),
        "def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = a or b\n    return x",
        *("x = {(a or b): 1 for y in z}", "x = (n for n in y for m in (a or b))"),
    ],
)
def test_found(code: str) -> None:
    others = "from x import a, b, c, d, e, f, x, y, z, E\n"
    finding = condition(others + code, "a or b", {"a or b": True})
    assert finding.ok, finding


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("a or b", "is part of a statement whose value is dropped"),
        ("print(a or b)", "is part of a statement whose value is dropped"),
        ("async def f():\n    await (a or b)", "is part of a statement whose value is dropped"),
        ("def f(x=a or b): pass", "is part of a parameter's default"),
        ("def f(*, x=a or b): pass", "is part of a parameter's default"),
        ("x = lambda y=a or b: 1", "is part of a default or of an f-string"),
        ("x = f'{a or b}'", "is part of a default or of an f-string"),
        ("x = f'{1:{a or b}}'", "is part of a default or of an f-string"),
        ("def f():\n    x = a or b\n    return 1", "is assigned to x, which is never read"),
        ("def f():\n    x: int = a or b\n    del x", "is assigned to x, which is never read"),
        (
            "def f():\n    x = a or b\n    return [x for x in y], lambda x: x",
            "is assigned to x, which is never read",
        ),
        ("if OFF: x = a or b", "is not reached, since OFF is false"),
        ("if g(): pass\nelse: x = a or b", "is not reached, since g() is true"),
        ("if g(): pass\nelif a or b: pass", "is not reached, since g() is true"),
        ("if c: pass\nelif OFF: x = a or b", "is not reached, since OFF is false"),
        ("while OFF: x = a or b", "is not reached, since OFF is false"),
        ("if OFF:\n    def f(): return a or b", "is not reached, since OFF is false"),
        ("def f():\n    if g(): return 0\n    return a or b", "is not reached, since g() is true"),
        ("def f():\n    if c: raise\n    elif g(): return\n    return a or b", "g() is true"),
        ("def f():\n    if OFF: pass\n    else: return\n    return a or b", "OFF is false"),
        (
            "def f():\n    if c: raise\n    if OFF: c()\n    else: return\n    return a or b",
            "false",
        ),
        ("for n in y:\n    if g(): continue\n    x = a or b", "is not reached, since g() is true"),
        (
            "def f():\n    if c: return\n    elif OFF: pass\n    else: return\n    return a or b",
            "is not reached, since OFF is false",
        ),
        ("x = (a or b) and False", "makes no difference beside False"),
        ("x = (a or b) or True", "makes no difference beside True"),
        ("x = a or b or True", "makes no difference beside True"),
        ("x = True or a or b", "makes no difference beside True"),
        ("x = True or (a or b)", "makes no difference beside True"),
        ("x = (c and (a or b)) or 1", "makes no difference beside 1"),
        ("x = (a or b) and OFF", "makes no difference beside OFF"),
        ("x = (a or b) and not g()", "makes no difference beside not g()"),
        ("x = (a or b) if OFF else c", "makes no difference under OFF"),
        ("x = c if g() else (a or b)", "makes no difference under g()"),
        ("if False: x = a or b", "stands in dead code"),
        ("if 0: x = a or b", "stands in dead code"),
        ("if not True: x = a or b", "stands in dead code"),
        ("if False and y: x = a or b", "stands in dead code"),
        ("if not (True or y): x = a or b", "stands in dead code"),
        ("if True: pass\nelse: x = a or b", "stands in dead code"),
        ("if 1: pass\nelif a or b: pass", "stands in dead code"),
        ("if TYPE_CHECKING: x = a or b", "stands in dead code"),
        ("if typing.TYPE_CHECKING: x = a or b", "stands in dead code"),
        ("while False: x = a or b", "stands in dead code"),
        ("while True: pass\nx = a or b", "stands in dead code"),
        ("while True: pass\nelse: x = a or b", "stands in dead code"),
        ("while True:\n    while y: break\nx = a or b", "stands in dead code"),
        ("while True:\n    continue\n    break\nx = a or b", "stands in dead code"),
        ("while True:\n    def f():\n        break\nx = a or b", "stands in dead code"),
        ("def f():\n    return 1\n    return a or b", "stands in dead code"),
        ("def f():\n    raise E\n    return a or b", "stands in dead code"),
        ("for n in y:\n    continue\n    x = a or b", "stands in dead code"),
        ("for n in y:\n    break\n    x = a or b", "stands in dead code"),
        (
            "def f():\n    if y: return 1\n    else: raise E\n    return a or b",
            "stands in dead code",
        ),
        (
            "def f():\n    try: return 1\n    except E: raise\n    return a or b",
            "stands in dead code",
        ),
        (
            "def f():\n    try: pass\n    finally: return\n    return a or b",
            "stands in dead code",
        ),
        ("def f():\n    try: return 1\n    except E: pass\n    else: return a or b", "dead code"),
        ("def f():\n    return 1\n    def g():\n        return a or b", "stands in dead code"),
        ("def f():\n    if y: return a\n    while True: pass\n    return a or b", "dead code"),
    ],
)
def test_found_where_it_decides_nothing(code: str, why: str) -> None:
    others = "a = 1\nOFF = False\nb = c = y = E = g = None\n"
    finding = condition(others + code, "a or b", {"g()": True})
    assert not finding.ok
    assert finding.message.startswith("no code in the file decides by a or b: on line ")
    assert finding.message.endswith(why)
    assert finding.line is not None
    assert "a or b" in (others + code).split("\n")[finding.line - 1]


@pytest.mark.parametrize(
    "code",
    [
        *("x = b or a", "x = a and b", "x = a or c or b", "x = 'a or b'", "# a or b", "x = a"),
        *("x: (a or b)", "def f(x: (a or b)) -> (a or b): pass", "x = False and (a or b)"),
        *("x = (a or b) if False else c", "x = c if True else (a or b)"),
        *("x = a or (b and c)", "x = a.a or b"),
    ],
)
def test_not_found(code: str) -> None:
    finding = condition("a = 1\nb = c = None\n" + code, "a or b")
    assert not finding.ok
    assert "no code in the file decides by a or b" in finding.message
    assert "on line 3 it" not in finding.message


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    for n in y: return 1\n    return a or b",
        "def f():\n    while y: return 1\n    return a or b",
        "def f():\n    while True:\n        if y: break\n    return a or b",
        "def f():\n    with y: raise E\n    return a or b",
        "def f():\n    if y: return 1\n    return a or b",
        "def f():\n    try: return 1\n    except E: pass\n    return a or b",
        "def f():\n    try: pass\n    except E: return 1\n    return a or b",
        "def f():\n    try: pass\n    except E: return 1\n    else: return a or b",
        "def f():\n    try: return\n    finally: return a or b",
        "def f():\n    match y:\n        case 1: return 1\n    return a or b",
        "def f():\n    for n in y: break\n    else: return a or b",
        "def f():\n    while y: pass\n    else: return a or b",
        "def f():\n    for n in y: break\n    else: return 1\n    return a or b",
        "if y or True: x = a or b",
        "if g(): x = a or b",
        "if OFF: pass\nelse: x = a or b",
        "if OFF: pass\nx = a or b",
        "if g(): pass\nx = a or b",
        "while g(): x = a or b",
        "def f():\n    if OFF: return\n    return a or b",
        "def f():\n    if g(): pass\n    else: return\n    return a or b",
        "def f():\n    if c: pass\n    elif g(): return\n    return a or b",
        "def f():\n    if OFF: pass\n    elif c: pass\n    else: return\n    return a or b",
        "def f():\n    if y:\n        if g(): return\n    return a or b",
        "def f():\n    if g(): return\ndef h(): return a or b",
        # A local name may be another one by then.
        "def f(OFF):\n    if OFF: return a or b",
        "def f():\n    OFF = y\n    if OFF: return a or b",
        "if [OFF for OFF in y]: x = a or b",
        "if y and True: x = a or b",
        "if not y: x = a or b",
    ],
)
def test_live_code_is_not_taken_for_dead(code: str) -> None:
    others = "a = 1\nOFF = False\nfrom x import b, c, y, E, g\n"
    finding = condition(others + code, "a or b", {"g()": True})
    assert finding.ok, finding


def test_the_nearest_expression_is_shown() -> None:
    source = """\
    def f():
        return (sm90 or sm100) and not z

    def g():
        return sm90 or sm120
    """
    finding = condition(source, "sm90 or sm100 or sm120", within="f")
    assert finding.message == (
        "no code in f decides by sm90 or sm100 or sm120; the nearest is sm90 or sm100 on line 2"
    )
    assert finding.line == 2
    assert "sm90 or sm120 on line 5" in condition(source, "sm80 or sm120").message
    assert "not z on line 2" in condition(source, "not y").message
    assert condition(source, "sm90").ok is False
    source = "x = sm90 or sm100, sm90_or_sm120(y)\nif 0: x = sm90 or sm120\nsm90 or sm12\n"
    assert "nearest is sm90 or sm100 on line 1" in condition(source, "sm90 or sm121").message
    finding = condition(source, "quite + different(things, here)")
    assert "nearest" not in finding.message
    assert finding.line == 1


def test_long_expressions_are_shown_from_where_they_differ() -> None:
    terms = [f"term_number_{n}" for n in range(20)]
    source = f"x = {' and '.join(terms)} and (last or least)\n"
    finding = condition(source, f"{' and '.join(terms)} and (last or first)")
    assert finding.message == (
        "no code in the file decides by …mber_18 and term_number_19 and (last or first); the "
        "nearest is …mber_18 and term_number_19 and (last or least) on line 1"
    )
    finding = condition(source, f"zero and {' and '.join(terms)}")
    assert "decides by zero and term_number_0 and" in finding.message
    assert "; the nearest is term_number_0 and term_number_1 and" in finding.message
    assert finding.message.endswith("… on line 1")
    finding = condition(source, f"{' and '.join(terms)} and (last or least) and more")
    assert "(last or least) and more; the nearest is …" in finding.message
    assert finding.message.endswith("and (last or least) on line 1")


def test_structure_counts_and_spelling_does_not() -> None:
    source = 'if (a\n    or  (b . c)) or u"x" == f(1, k=[2]): pass\na = b = f = 1'
    assert condition(source, 'a or b.c or ("x" == f(1,k=[2]))').ok
    assert condition(source, "a or\nb.c  # with a comment").ok
    for other in ("a or b.d", "b.c or 'x' == f(1, k=[2.0])", "'x' == f(True, k=[2])", "a or b"):
        assert not condition(source, other).ok


def test_a_found_place_that_decides_is_enough_beside_one_that_does_not() -> None:
    assert condition("a = b = 1\nprint(a or b)\nx = a or b\n", "a or b").line == 3


def test_every_place_that_decides_must_yield_it() -> None:
    source = "a = b = 1\ndef f():\n    return a or b\ndef g(a):\n    return a or b\n"
    finding = condition(source, "a or b", {"b": False})
    assert not finding.ok
    assert finding.line == 5
    assert "unknown: a (local to g)" in finding.message
    assert condition(source, "a or b", {"b": False}, within="f").ok


def test_a_definition_without_it_has_no_say() -> None:
    source = "a = b = 1\nif a:\n    def f(): return a or b\nelse:\n    def f(): return 0\n"
    assert condition(source, "a or b", within="f").ok


def test_warnings_on_expressions_are_not_printed() -> None:
    assert condition("a = x = f(1)", r"f(1)", {r"'\d' + f(1)": 1, "f(1)": True}).ok


@pytest.mark.parametrize(
    "text", ["", "  ", "a or", "a; b", "a = 1", "x\0", "(", "a) or (b", "é\ud800"]
)
def test_an_expression_that_is_none(text: str) -> None:
    finding = condition("a", text)
    assert not finding.ok
    assert finding.message.startswith("the test is no Python expression: ") or text == "a) or (b"
    finding = condition("a", "a", {text: True})
    assert finding.message.startswith("a key of given is no Python expression: ") or (
        text == "a) or (b"
    )


# -- condition: what it yields -------------------------------------------------------------

MODULE = """\
from helpers import is_cuda, is_sm90, is_sm120, unknown
import torch
_cuda = is_cuda()
_sm90 = _cuda and is_sm90()
_sm120 = _cuda and is_sm120()
YES = True
NO = not YES
MAX = 2048
NAME = "none"
EMPTY = ""
TUPLE = (9, 10)
"""


def outcome(test: str, given: Mapping[str, object] | None = None, before: str = "") -> bool | None:
    """What a test yields in a module; None for unknown."""
    source = f"{MODULE}{before}\ndef gate(local):\n    return f({test})\ndef f(x): return x\n"
    yes = condition(source, test, given, yields=True)
    no = condition(source, test, given, yields=False)
    assert not (yes.ok and no.ok)
    if not yes.ok and not no.ok:
        assert "unknown: " in yes.message or "undefined name" in yes.message, yes
        assert yes.message.replace("expected true", "") == no.message.replace("expected false", "")
    return True if yes.ok else False if no.ok else None


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        *(("YES", True), ("NO", False), ("not NO", True), ("MAX", True), ("EMPTY", False)),
        *(("unknown()", None), ("unknown", None), ("local", None), ("local.x", None)),
        # Kleene's tables.
        *(("YES and YES", True), ("YES and NO", False), ("NO and unknown()", False)),
        *(("unknown() and NO", False), ("YES and unknown()", None), ("unknown() and YES", None)),
        *(("NO or NO", False), ("NO or YES", True), ("YES or unknown()", True)),
        *(("unknown() or YES", True), ("unknown() or NO", None), ("NO or unknown()", None)),
        *(("not unknown()", None), ("unknown() or not unknown()", None)),
        ("(unknown() and NO) or (YES and not NO)", True),
        # Conditional expressions.
        *(("YES if YES else NO", True), ("YES if NO else NO", False)),
        *(("YES if unknown() else YES", True), ("YES if unknown() else NO", None)),
        *(("MAX if unknown() else YES", True), ("local if unknown() else YES", None)),
        *(("YES if unknown() else local", None), ("local if YES else NO", None)),
        # Comparisons.
        *(("MAX == 2048", True), ("MAX != 2048", False), ("MAX > 1", True), ("MAX < 1", False)),
        *(("MAX >= 2048", True), ("MAX <= 2047", False), ("1 < MAX < 3", False)),
        *(("1 < MAX < 3000", True), ("1 < local < 3", None), ("3 < 2 < local", False)),
        *(("local < 3 < 2", False), ("local < 3", None), ("NAME == 'none'", True)),
        *(("NAME in ['a', 'none']", True), ("NAME not in ('none',)", False), ("9 in TUPLE", True)),
        *(("12 in TUPLE", False), ("NAME in {'none'}", True), ("NAME in [local]", None)),
        *(("NAME < 1", None), ("1 in MAX", None), ("local in TUPLE", None), ("[] in {[]}", None)),
        *(("None is None", True), ("YES is True", True), ("NAME is None", False)),
        *(("NAME is not None", True), ("MAX is 2048", None), ("local is None", None)),
        *(("None is local", None), ("(unknown() or 1) is None", None), ("local is MAX", None)),
        *(("(unknown() or YES) == 1", None), ("(NO and unknown()) == NO", True)),
        # A value that is known only by its truth is not taken for more.
        *(("(unknown() and '') == ''", None), ("not (unknown() and '')", True)),
        *(
            ("(YES and 'a') == 'a'", True),
            ("(EMPTY or 'a') == 'a'", True),
            ("(NO or '') == ''", True),
        ),
        # The rest.
        *(("bool(MAX)", True), ("bool(EMPTY)", False), ("bool(unknown())", None)),
        *(("bool(unknown() or YES) is True", True), ("bool()", None), ("bool(MAX, 1)", None)),
        *(("-MAX < 0", True), ("+MAX > 0", True), ("-NAME", None), ("~MAX", None)),
        *(("MAX + 1", None), ("TUPLE[0]", None), ("(x := YES)", True), ("...", True)),
        *(("(1, NAME) == (1, 'none')", True), ("f'x'", None), ("lambda: 1", None)),
        *(("TYPE_CHECKING", False), ("typing.TYPE_CHECKING", False), ("len", None)),
        *(("__name__", None), ("__file__", None), ("int(MAX)", None)),
    ],
)
def test_yields(test: str, expected: bool | None) -> None:
    if re.match(r"f'|\.\.\.|None is None|YES$|NO$", test):
        test = f"({test})"
    assert outcome(test, before="import typing\nfrom typing import TYPE_CHECKING") is expected


GIVEN = [
    ("_sm120", {"is_cuda()": True, "is_sm120()": True}, True),
    ("_sm120", {"is_cuda()": True, "is_sm120()": False}, False),
    ("_sm120", {"is_cuda()": False}, False),
    ("_sm120", {"is_sm120()": True}, None),
    ("_sm120", {"_sm120": True}, True),
    ("_sm120", {"_sm120": False, "is_cuda()": True, "is_sm120()": True}, False),
    ("_sm90 or _sm120", {"is_cuda()": True, "is_sm90()": False, "is_sm120()": True}, True),
    ("_sm90 or _sm120", {"is_cuda()": True, "is_sm90()": False}, None),
    ("_sm90 or _sm120", {"_cuda and is_sm90()": True}, True),
    ("local > 0", {"local": 1}, True),
    ("local > 0", {"local": 0}, False),
    ("local > 0", {"local > 0": True}, True),
    ("local > 0", {"local": "text"}, None),
    ("local.tp_size > 1 and local.mode == 'x'", {"local.tp_size": 2, "local.mode": "x"}, True),
    ("local['a'](1)", {'local["a"](1)': True}, True),
    ("12 in local.sizes", {"local.sizes": [9, 12]}, True),
    ("not local()", {"local( )": True}, False),
    ("YES", {"YES": False}, False),
    ("f(local)", {"f(local)": 2.5}, True),
]


@pytest.mark.parametrize(("test", "given", "expected"), GIVEN)
def test_yields_what_follows_from_what_is_given(
    test: str, given: dict[str, object], expected: bool | None
) -> None:
    assert outcome(test, given) is expected


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("X = True", True),
        ("X: bool = True", True),
        ("X = Y = True", True),
        ("X, Y = True, False", True),
        ("if (X := True): pass", True),
        ("X = False\nX = True", None),
        ("X = True\nX = True", True),
        ("X = True\nX = 1", True),
        ("if unknown():\n    X = True\nelse:\n    X = False", None),
        ("if unknown():\n    X = True\nelse:\n    X = True", True),
        ("try:\n    X = YES\nexcept E:\n    X = True", True),
        ("try:\n    X = True\nexcept E:\n    X = unknown()", None),
        ("if False:\n    X = False\nX = True", True),
        ("if TYPE_CHECKING:\n    X = False\nelse:\n    X = True", True),
        ("X: bool\nX = True", True),
        ("X = True\nX += 1", None),
        ("X = True\nfor X in y: pass", None),
        ("X = True\ndel X", None),
        ("X = True\nimport X", None),
        ("X = True\nfrom a import b as X", None),
        ("X = True\ndef X(): pass", None),
        ("X = True\nclass X: pass", None),
        ("X = True\nwith a as X: pass", None),
        ("X = True\ntry: pass\nexcept E as X: pass", None),
        ("X = True\nX, *y = 1, 2", None),
        ("X = True\ndef g():\n    global X\n    X = True", None),
        ("X = True\ndef g():\n    global X\n    return X", True),
        ("X = True\ndef g():\n    X = False", True),
        ("X = True\nclass C:\n    X = False", True),
        ("X = X or True", True),
        ("X = X and True", None),
        ("X = not X", None),
        ("X = Z\nZ = X", None),
        ("X = Z\nZ = W\nW = True", True),
        ("from star import *\nX = True", True),
        ("from star import *", None),
        ("X, Y = unknown()", None),
        ("match unknown():\n    case X: pass", None),
    ],
)
def test_names_are_followed_through_module_level_assignments(
    before: str, expected: bool | None
) -> None:
    before += "\nimport a\nfrom typing import TYPE_CHECKING\nE = y = None"
    assert outcome("X and X", before=before) is expected


@pytest.mark.parametrize(
    "code",
    [
        "def f(X): return X or X",
        "def f(*X): return X or X",
        "def f(**X): return X or X",
        "def f(X, /): return X or X",
        "def f(*, X=1): return X or X",
        "def f():\n    X = 1\n    return X or X",
        "def f():\n    if False:\n        X = 1\n    return X or X",
        "def f():\n    import X\n    return X or X",
        "def f():\n    def X(): pass\n    return X or X",
        "def f():\n    X: bool\n    return X or X",
        "def f():\n    for X in y: return X or X",
        "def f(X):\n    def g(): return X or X\n    return g",
        "def f(X): return lambda: X or X",
        "y = lambda X: X or X",
        "y = lambda a=1, *X: X or X",
        "y = [1 for X in y if X or X]",
        "y = {X or X: 1 for X in y}",
        "y = [1 for (z, X) in y for n in (X or X)]",
        "def f():\n    [X := 1]\n    return X or X",
        "class C:\n    X = 1\n    y = X or X",
        "def f():\n  X = 1\n  def g():\n    nonlocal X\n    X = 2\n    return X or X",
        "def f():\n X = 1\n class C:\n  def g(s):\n   nonlocal X\n   X = 2\n   return X or X",
    ],
)
def test_local_names_are_unknown(code: str) -> None:
    finding = condition("X = True\ny = ()\n" + code, "X or X")
    assert not finding.ok
    assert "unknown: X (local to " in finding.message, finding


@pytest.mark.parametrize(
    "code",
    [
        "def f(): return X or X",
        "class C:\n    X = 1\n    def f(self): return X or X",
        "def f():\n    global X\n    return X or X",
        "def g(X):\n    def f():\n        global X\n        return X or X",
        "def g():\n    global X\n    def f():\n        return X or X",
        "y = [1 for X in (X or X)]",
        "y = lambda z: X or X",
        "def f(X): pass\ny = X or X",
        "nonlocal X\nX = True\ny = X or X",
        "class C:\n    nonlocal X\n    X = True\ny = X or X",
    ],
)
def test_names_of_the_module_are_seen_from_inside(code: str) -> None:
    assert condition("X = True\n" + code, "X or X").ok


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs the syntax of Python 3.12")
def test_type_parameters_are_local() -> None:
    source = "X = True\ntype A = X\ndef f[X](): return X or X\nclass C[Y]: z = A or Y\n"
    assert "X (local to f)" in condition(source, "X or X").message
    finding = condition(source, "A or Y")
    assert "A (bound on line 2), Y (local to C)" in finding.message


@pytest.mark.parametrize(
    ("test", "before", "name"),
    [
        ("YES or gone", "", "gone"),
        ("YES or gone()", "", "gone"),
        ("YES or gone.attribute", "", "gone"),
        ("YES or unknown(gone)", "", "gone"),
        ("YES or X", "X = _cuda and gone()", "gone"),
        ("YES or X", "X = Y\nY = [1 for n in gone]", "gone"),
        ("YES or X", "if TYPE_CHECKING:\n    from helpers import X", "X"),
        ("YES or X", "X: bool", "X"),
        ("YES or X", "def other():\n    X = 1", "X"),
        ("YES or X", "class Other:\n    X = 1", "X"),
        ("YES or X", "del X", "X"),
    ],
)
def test_an_undefined_name_is_a_failure_even_where_another_operand_decides(
    test: str, before: str, name: str
) -> None:
    before += "\nfrom typing import TYPE_CHECKING"
    source = f"{MODULE}{before}\ndef gate(local):\n    return {test}\n"
    for yields in (True, False):
        finding = condition(source, test, yields=yields)
        assert not finding.ok
        assert f"undefined name {name}" in finding.message
        assert finding.line == source.count("\n")


def test_names_that_are_given_need_no_definition() -> None:
    assert outcome("YES and gone", {"gone": True}) is True
    assert outcome("YES and gone()", {"gone()": True}) is True
    assert outcome("YES and gone", {"gone()": True}) is None


def test_with_a_star_import_any_name_may_be_defined() -> None:
    finding = condition("from a import *\nx = gone or gone", "gone or gone")
    assert "unknown: gone" in finding.message


def test_messages_say_what_was_found() -> None:
    source = MODULE + "def gate(n):\n    return (_sm90 or _sm120) and n > 0\n"
    given = {"is_cuda()": True, "is_sm90()": False, "is_sm120()": False}
    finding = condition(source, "_sm90 or _sm120", given)
    assert finding == Finding(
        False,
        "_sm90 or _sm120 on line 13 is false, expected true: _sm90 is false, _sm120 is false",
        13,
    )
    finding = condition(source, "_sm90 or _sm120", given, yields=False)
    assert finding == Finding(True, "_sm90 or _sm120 is false", 13)
    finding = condition(source, "(_sm90 or _sm120) and n > 0", {**given, "is_sm90()": True})
    assert finding.message.endswith("cannot be judged, expected true: unknown: n (local to gate)")
    finding = condition(source, "n > 0", {"n": 0})
    assert finding.message == "n > 0 on line 13 is false, expected true"
    finding = condition("X = 1\nX = 0\ny = X, X", "X, X")
    assert finding.message.endswith("unknown: X (assigned differently on lines 1, 2)")
    finding = condition("x = f(a if u() else b)\nfrom m import a, b, f, u\n", "a if u() else b")
    assert finding.message.endswith("expected true: unknown: u()")
    names = " or ".join(f"local{n}" for n in range(7))
    source = f"def f({names.replace(' or', ',')}):\n    return {names}\n"
    assert condition(source, names).message.endswith("local4 (local to f), …")


def test_a_fan_of_names_is_judged_once_each() -> None:
    rows = ["X0 = is_it()", *(f"X{n + 1} = X{n} and X{n}" for n in range(60))]
    source = "from a import is_it\n" + "\n".join(rows) + "\ny = X60 or X60\n"
    assert condition(source, "X60 or X60", {"is_it()": True}).ok


def test_a_long_chain_of_names_is_no_crash() -> None:
    rows = ["X0 = True", *(f"X{n + 1} = X{n} and True" for n in range(3000))]
    finding = condition("\n".join(rows) + "\ny = X3000 or X3000\n", "X3000 or X3000")
    assert finding == Finding(False, "cannot be judged: nested too deeply")


def test_helpers_for_expressions() -> None:
    tree = ast.parse("f'{x['a']}' + a", mode="eval") if sys.version_info >= (3, 12) else None
    assert tree is None or "x[" in shown(tree.body)
    assert shown(ast.parse("a" * 300, mode="eval").body).endswith("…")
    huge = ast.parse(hex(10**5000), mode="eval").body
    assert shown(huge) == "<the expression on line 1>"
    assert ancestors(ast.parse("a"), ast.parse("b")) is None
    assert same(ast.parse("(a or b) or c"), ast.parse("a or (b or c)"))
    assert not same(ast.parse("a or b"), ast.parse("a and b"))


# -- defined ------------------------------------------------------------------------------

UTILS = {
    "pkg/__init__.py": "",
    "pkg/utils/__init__.py": "from pkg.utils.common import *\nfrom .other import shown as named\n",
    "pkg/utils/common.py": (
        "import functools\n"
        "__version__ = 1\n"
        "_private = 1\n"
        "helper = other = functools.lru_cache(1)\n"
        "def function(): inner = 1\n"
        "class Class: attribute = 1\n"
        "if functools:\n    under_if = 1\n"
        "try:\n    under_try = 1\nexcept E as caught:\n    pass\n"
        "gone = 1\ndel gone\n"
        "if 0:\n    dead = 1\n"
        "declared: int\n"
        "def setter():\n    global from_function\n    from_function = 1\n"
    ),
    "pkg/utils/other.py": "from .common import function as shown\nfrom ..top import far\n",
    "pkg/top.py": "far = 1\nfrom pkg.top import myself\nfrom pkg.ring import ring\n",
    "pkg/ring.py": "from pkg.top import ring\nfrom pkg.ring import *\n",
    "pkg/listed.py": "__all__ = ['_a', 'c']\n_a = b = 1\nfrom pkg.top import *\n",
    "pkg/made.py": "__all__ = ['a'] + x\na = b = 1\n",
    "pkg/mixed.py": "__all__ = [a, 'x']\nb = 1\n",
    "pkg/lazy.py": "def __getattr__(name): return 1\n",
    "pkg/broken.py": "def f(:\n",
    "pkg/namespace/inside.py": "x = 1\n",
    "pkg/stars.py": "from pkg.listed import *\nfrom pkg.made import *\nfrom pkg.mixed import *\n",
    "pkg/wrong.py": "from pkg.utils import missing\nfrom third_party import thing\nimport torch\n",
    "pkg/tries.py": "try:\n    from a import x\nexcept E:\n    from pkg.top import far as x\n",
    "pkg/both/__init__.py": "here = 1\n",
    "pkg/both.py": "there = 1\n",
}


@pytest.mark.parametrize(
    "line",
    [
        *("from pkg.utils.common import NAME:helper", "from pkg.utils.common import NAME:other"),
        *("from pkg.utils.common import NAME:function", "from pkg.utils.common import NAME:Class"),
        *("from pkg.utils.common import NAME:under_if", "from .utils.common import NAME:under_try"),
        *(
            "from pkg.utils.common import NAME:_private",
            "from pkg.utils.common import NAME:functools",
        ),
        *("from pkg.utils import NAME:helper", "from .utils import NAME:helper"),
        *("from pkg.utils import NAME:named", "from pkg.utils.other import NAME:far"),
        *(
            "from pkg.utils import NAME:common",
            "from . import NAME:utils",
            "from pkg import NAME:top",
        ),
        *("from pkg.namespace import NAME:inside", "from .namespace.inside import NAME:x"),
        *("from pkg.utils.common import helper as NAME", "from pkg.tries import NAME:x"),
        *("from pkg.listed import NAME:_a", "from pkg.listed import NAME:b"),
        *("import pkg.utils as NAME", "import pkg.top as NAME", "from pkg.both import NAME:here"),
        *(
            "from pkg.stars import NAME:_a",
            "from pkg.stars import NAME:a",
            "from pkg.stars import NAME:b",
        ),
    ],
)
@pytest.mark.parametrize(
    "use",
    [
        *("x = NAME()", "x = NAME.attribute", "def f():\n    return NAME", "NAME()"),
        *("if True:\n    IMPORT\n    x = NAME", "try:\n    IMPORT\nexcept E: pass\nx = NAME"),
        *("def f():\n    IMPORT\n    return NAME", "class C:\n    IMPORT\n    x = NAME"),
        *(
            "@NAME\ndef f(): pass",
            "def f(x=NAME): pass",
            "class C(NAME): pass",
            "x = lambda y=NAME: 1",
        ),
        *(
            "x = f'{NAME}'",
            "assert 1, NAME",
            "NAME[1] = 2",
            "NAME.x = 2",
            "match x:\n    case NAME(): pass",
        ),
        *("match x:\n    case NAME.y: pass", "x = [NAME for y in z]", "with NAME: pass"),
    ],
)
def test_defined(line: str, use: str) -> None:
    line, _, name = line.partition(":")
    line, name = line.replace("NAME", name or "NAME"), name or "NAME"
    use = use.replace("NAME", name)
    source = use.replace("IMPORT", line) if "IMPORT" in use else f"{line}\n{use}"
    others = {"functools.py": "", **UTILS}
    finding = defined(source + "\n", name, others=others)
    assert finding.ok, finding


@pytest.mark.parametrize(
    ("line", "name", "message"),
    [
        ("from pkg.utils import missing", "missing", "is bound nowhere in pkg/utils/__init__.py"),
        ("from pkg.utils.common import helpr", "helpr", "pkg/utils/common.py; nearest: helper"),
        ("from pkg.utils.common import inner", "inner", "is bound nowhere in pkg/utils/common.py"),
        (
            "from pkg.utils.common import gone",
            "gone",
            "is deleted on line 14 of pkg/utils/common.py",
        ),
        ("from pkg.utils.common import dead", "dead", "only by code that does not run"),
        ("from pkg.utils.common import declared", "declared", "only by code that does not run"),
        ("from pkg.utils.common import caught", "caught", "only by code that does not run"),
        ("from pkg.utils.common import from_function", "from_function", "only by code that does"),
        ("from pkg.utils import _private", "_private", ", nor by its star imports"),
        ("from pkg.utils import __version__", "__version__", ", nor by its star imports"),
        ("from pkg.both import there", "there", "is bound nowhere in pkg/both/__init__.py"),
        ("from pkg.stars import c", "c", ", nor by its star imports"),
        ("from pkg.stars import far", "far", ", nor by its star imports"),
        ("from pkg.stars import x", "x", ", nor by its star imports"),
        ("from pkg.absent import x", "x", "from pkg.absent, which cannot be found in this distrib"),
        ("from pkg.namespace import y", "y", "from pkg.namespace, which cannot be found in this"),
        ("from third_party import x", "x", "from third_party, which cannot be found in this dist"),
        ("import torch", "torch", "is torch, which cannot be found in this distribution"),
        ("import pkg.absent", "pkg", "is pkg.absent, which cannot be found in this distribution"),
        ("from .absent import x", "x", "from .absent, which cannot be found in this distribution"),
        (
            "from ..absent import x",
            "x",
            "is imported by pkg/mod.py from outside of the distribution",
        ),
        ("from pkg.wrong import missing", "missing", "is bound nowhere in pkg/utils/__init__.py"),
        ("from pkg.wrong import thing", "thing", "from third_party, which cannot be found in this"),
        ("from pkg.wrong import torch", "torch", "is torch, which cannot be found in this distr"),
        ("from pkg.top import myself", "myself", "not bound in pkg/top.py: its imports go in a ci"),
        (
            "from pkg.top import ring",
            "ring",
            "is not bound in pkg/top.py: its imports go in a circ",
        ),
        ("from pkg.ring import x", "x", "is bound nowhere in pkg/ring.py, nor by its star imports"),
        ("from pkg.lazy import x", "x", "; its __getattr__ may make it, which cannot be judged"),
        ("from pkg.broken import f", "f", "from pkg/broken.py, which cannot be parsed as Python: "),
        ("from pkg.lazy import *", "x", "is bound nowhere in pkg/mod.py, nor by its star imports"),
        ("if TYPE_CHECKING:\n    from pkg.top import far", "far", "only by code that does not run"),
        ("def g():\n    from pkg.top import far", "far", "is bound nowhere in pkg/mod.py"),
        ("import pkg.top as other", "top", "is bound nowhere in pkg/mod.py"),
        ("far = 1\ndel far", "far", "is deleted on line 2 of pkg/mod.py"),
        ("def g():\n    global far\n    far = 1", "far", "only by code that does not run"),
        ("far: int", "far", "only by code that does not run"),
        ("pass", "print", "is bound nowhere in pkg/mod.py"),
        ("try:\n    from pkg.top import x\nexcept ImportError:\n    x = None", "x", "pkg/top.py"),
    ],
)
def test_defined_nowhere(line: str, name: str, message: str) -> None:
    source = f"{line}\nTYPE_CHECKING = 1\nresult = {name}\n"
    finding = defined(source, name, others=UTILS)
    assert not finding.ok
    assert message in finding.message
    assert finding.message.startswith(f"{name} on line {finding.line} ")
    assert name in source.split("\n")[(finding.line or 0) - 1]


@pytest.mark.parametrize(
    "source",
    [
        "NAME = 1\nx = NAME",
        "def NAME(): pass\nx = NAME",
        "class NAME: pass\nx = NAME",
        "NAME: int = 1\nx = NAME",
        "if x:\n    NAME = 1\ny = NAME",
        "for NAME in x: pass\ny = NAME",
        "with x as NAME: pass\ny = NAME",
        "(NAME := 1)\nx = NAME",
        "NAME, y = 1, 2\nx = NAME",
        "NAME = 1\ndel NAME\nNAME = 2\nx = NAME",
        "NAME = 1; del NAME; NAME = 2; x = NAME",
        "from pkg.utils import *\nhelper = 1\nNAME = helper\nx = NAME",
        "def f(): return NAME\nNAME = 1",
        "def f(NAME): return NAME\nNAME = 1\ng = NAME",
        "try:\n  from a import NAME\nexcept E:\n  from pkg.top import far as NAME\nNAME()",
    ],
)
def test_a_binding_of_the_module_itself_is_enough(source: str) -> None:
    finding = defined(source + "\n", "NAME", others=UTILS)
    assert finding.ok, finding


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("NAME = 1", "NAME is not used by any live code in the file"),
        ("NAME = 1\nNAME", "NAME is not used by any live code in the file"),
        ("NAME = 1\nNAME or NAME", "NAME is not used by any live code in the file"),
        ("NAME = 1\nx.NAME = y.NAME", "NAME is not used by any live code in the file"),
        ("NAME = 1\nx = 'NAME'  # NAME", "NAME is not used by any live code in the file"),
        ("NAME = 1\nif False: x = NAME", "NAME is not used by any live code in the file"),
        ("NAME = 1\nx = False and NAME", "NAME is not used by any live code in the file"),
        ("NAME = 1\ndef f(x: NAME) -> NAME: y: NAME", "NAME is not used by any live code"),
        ("NAME = 1\ndef f():\n    return\n    NAME()", "NAME is not used by any live code"),
        (
            "NAME = 1\ndef f(NAME): return NAME",
            "NAME on line 2 is local to f, not a name of the mo",
        ),
        ("NAME = 1\nx = lambda NAME: NAME", "NAME on line 2 is local to a lambda, not a name of "),
        ("NAME = 1\nx = [NAME for NAME in y]", "NAME on line 2 is local to a comprehension, not a"),
        ("def f():\n    NAME = 1\n    return NAME", "NAME on line 3 is local to f, not a name of"),
    ],
)
def test_a_name_must_be_used(source: str, message: str) -> None:
    finding = defined(source + "\n", "NAME")
    assert not finding.ok
    assert finding.message.startswith(message)


def test_every_use_must_mean_something_that_exists() -> None:
    source = (
        "from pkg.top import far\ndef f():\n    from pkg.top import fur as far\n    far()\nfar()\n"
    )
    finding = defined(source, "far", others=UTILS)
    assert finding.message == "far on line 3 is bound nowhere in pkg/top.py; nearest: far"
    assert defined(source.replace("fur", "far"), "far", others=UTILS).ok


def test_defined_within() -> None:
    source = """\
    from pkg.utils import helper, missing
    _flag = helper() and True
    _bad = missing()
    _cycle = _other
    _other = _cycle
    def gate():
        return _flag or _cycle
    def other():
        return helper
    def bad():
        return _bad
    """
    assert defined(source, "helper", within="other", others=UTILS).ok
    # Through the module-level assignment of a name that is used there.
    assert defined(source, "helper", within="gate", others=UTILS).ok
    finding = defined(source, "helper", within="bad", others=UTILS)
    assert finding == Finding(False, "helper is not used by any live code in bad", 10)
    assert not defined(source, "missing", within="bad", others=UTILS).ok
    assert not defined(source, "missing", within="gate", others=UTILS).ok


def test_several_names_are_judged_together() -> None:
    source = "from pkg.utils import helper, missing\nhelper(missing)\n"
    finding = defined(source, "helper", "missing", "unused", others=UTILS)
    assert not finding.ok
    assert finding.line == 1
    assert "missing on line 1 is bound nowhere" in finding.message
    assert finding.message.endswith("; unused is not used by any live code in the file")
    finding = defined("a = b = 1\n\nf(b)\ng(a)\n", "a", "b")
    assert finding == Finding(True, "a, b: used, and defined", 3)


def test_reads_are_named_whether_there_or_not() -> None:
    source = "from pkg.utils import helper\nhelper()\n"
    finding = defined(source, "helper", others=UTILS)
    assert finding.reads == (
        *("pkg/utils/__init__.py", "pkg/utils/common.py", "pkg/utils/common/__init__.py"),
    )
    finding = defined("from a import b\nb()\n", "b")
    assert finding.reads == ("a.py", "a/__init__.py", "a/b.py", "a/b/__init__.py")
    finding = defined("from pkg.broken import f\nf()\n", "f", others=UTILS)
    assert finding.reads == ("pkg/broken.py", "pkg/broken/__init__.py")
    assert judge("x = 1", text="x", others=UTILS).reads == ()


def test_each_file_is_read_once() -> None:
    asked: list[str] = []

    def read(path: str) -> bytes | None:
        asked.append(path)
        source = UTILS.get(path)
        return source.encode() if source is not None else None

    source = b"from pkg.utils import helper, renamed, missing\nf(helper, renamed, missing)\n"
    names = ("helper", "renamed", "missing")
    evaluate(Assertion("assert[0]", "d", "pkg/mod.py", defined=names), source, read)
    assert len(asked) == len(set(asked)) > 2


def test_the_file_itself_is_not_read_again() -> None:
    source = "from pkg.other import back\nback(here)\nhere = 1\n"
    finding = defined(source, "back", others={"pkg/other.py": "from pkg.mod import here as back\n"})
    assert finding.ok
    assert "pkg/mod.py" not in finding.reads


def test_relative_imports_of_packages_and_of_the_root() -> None:
    others = {"pkg/top.py": "far = 1", "pkg/sub/__init__.py": "", "pkg/sub/a.py": "x = 1"}
    source = "from .a import x\nfrom ..top import far\nfrom . import a\nf(x, far, a)\n"
    assert defined(source, "x", "far", "a", file="pkg/sub/__init__.py", others=others).ok
    assert defined(source, "x", "far", "a", file="pkg/sub/b.py", others=others).ok
    finding = defined("from . import a\na()\n", "a", file="b.py", others={"a.py": ""})
    assert "from outside of the distribution" in finding.message
    assert defined("import a\na()\n", "a", file="b.py", others={"a.py": ""}).ok


def test_a_package_that_imports_its_own_submodule() -> None:
    others = {"pkg/sub.py": ""}
    finding = defined("from . import sub\nsub()\n", "sub", file="pkg/__init__.py", others=others)
    assert finding.ok, finding


# -- the real gates -----------------------------------------------------------------------

COMMUNICATOR = "sglang/srt/layers/communicator.py"
SERVER_ARGS = "sglang/srt/server_args.py"
JIT = "flashinfer/jit/comm.py"
RUNTIME_OLD = "_is_sm90_supported or _is_sm100_supported"
RUNTIME_NEW = f"{RUNTIME_OLD} or _is_sm120_supported"
STARTUP_OLD = "is_sm90_supported() or is_sm100_supported()"
STARTUP_NEW = f"{STARTUP_OLD} or is_sm120_supported()"
STARTUP = "ServerArgs._handle_model_specific_adjustments"


def capability(major: int) -> tuple[tuple[str, object], ...]:
    """What the helpers of SGLang say on a card of that major capability."""
    answers = {
        "is_cuda()": True,
        "is_sm90_supported()": major == 9,
        "is_sm100_supported()": major == 10,
        "is_sm120_supported()": major == 12,
        "is_blackwell_supported()": major in (10, 11, 12),
    }
    return tuple(answers.items())


class Tree:
    """One release, with changed files on top."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.changed: dict[str, bytes] = {}

    def read(self, path: str) -> bytes | None:
        if path in self.changed:
            return self.changed[path]
        file = self.root / path
        return file.read_bytes() if file.is_file() else None

    def change(self, path: str, old: str, new: str) -> Tree:
        data = self.read(path)
        assert data is not None
        assert data.count(old.encode()) == 1
        self.changed[path] = data.replace(old.encode(), new.encode())
        ast.parse(self.changed[path])
        return self

    def judge(self, path: str, **keys: Any) -> Finding:
        assertion = Assertion("assert[0]", "sglang", path, scope="code", **keys)
        return evaluate(assertion, self.read(path), self.read)

    def runtime(self, test: str, major: int, *, yields: bool) -> Finding:
        within = "apply_flashinfer_allreduce_fusion"
        wanted = Condition(test, capability(major), yields)
        return self.judge(COMMUNICATOR, condition=wanted, within=within)

    def startup(self, test: str, major: int, *, yields: bool) -> Finding:
        wanted = Condition(test, capability(major), yields)
        return self.judge(SERVER_ARGS, condition=wanted, within=STARTUP)


IMPORT = "    is_sm90_supported,\n    is_sm100_supported,\n)\n\n_is_cuda"
HELPER = "_is_sm100_supported = _is_cuda and is_sm100_supported()\n"


def patch_import(tree: Tree) -> None:
    new = IMPORT.replace(",\n)", ",\n    is_sm120_supported,\n)")
    tree.change(COMMUNICATOR, IMPORT, new)


def patch_helper(tree: Tree) -> None:
    new = HELPER + HELPER.replace("100", "120")
    tree.change(COMMUNICATOR, HELPER, new)


def patch_gate(tree: Tree) -> None:
    tree.change(COMMUNICATOR, f"({RUNTIME_OLD})", f"({RUNTIME_NEW})")


def patch_startup(tree: Tree) -> None:
    old = f"            and ({STARTUP_OLD})\n            and not self.enable_dp_attention\n"
    tree.change(SERVER_ARGS, old, old.replace(STARTUP_OLD, STARTUP_NEW))


@pytest.mark.parametrize("version", ["0.5.8", "0.5.8.post1", "0.5.9"])
def test_real_gates(release_tree: ReleaseTree, version: str) -> None:
    tree = Tree(release_tree("sglang", version))
    for major in (8, 9, 10, 12):
        before = major in (9, 10)
        finding = tree.runtime(RUNTIME_OLD, major, yields=before)
        assert finding.ok, finding
        assert tree.startup(STARTUP_OLD, major, yields=before).ok
        assert not tree.runtime(RUNTIME_OLD, major, yields=not before).ok
        for yields in (True, False):
            finding = tree.runtime(RUNTIME_NEW, major, yields=yields)
            assert not finding.ok
            assert f"the nearest is {RUNTIME_OLD} on line" in finding.message
            assert not tree.startup(STARTUP_NEW, major, yields=yields).ok
    patch_import(tree)
    patch_helper(tree)
    patch_gate(tree)
    patch_startup(tree)
    for major in (8, 9, 10, 12):
        after = major in (9, 10, 12)
        finding = tree.runtime(RUNTIME_NEW, major, yields=after)
        assert finding.ok, finding
        assert finding.line == (97 if version == "0.5.9" else 95)
        finding = tree.startup(STARTUP_NEW, major, yields=after)
        assert finding.ok, finding
        assert not tree.runtime(RUNTIME_NEW, major, yields=not after).ok
        assert not tree.startup(STARTUP_NEW, major, yields=not after).ok
    finding = tree.judge(COMMUNICATOR, defined=("is_sm120_supported", "is_cuda"))
    assert finding.ok, finding
    assert "sglang/srt/utils/common.py" in finding.reads
    assert tree.judge(SERVER_ARGS, defined=("is_sm120_supported",), within=STARTUP).ok
    # The rest of the gate is left alone, and unknown to whoever does not say it.
    wanted = Condition(f"({RUNTIME_NEW}) and _is_flashinfer_available", capability(12), True)
    finding = tree.judge(COMMUNICATOR, condition=wanted)
    assert "unknown: is_flashinfer_available()" in finding.message


def fake_comment(tree: Tree) -> None:
    tree.change(COMMUNICATOR, f"({RUNTIME_OLD})", f"({RUNTIME_OLD})  # or _is_sm120_supported")


def fake_undefined(tree: Tree) -> None:
    patch_import(tree)
    patch_gate(tree)


def fake_false(tree: Tree) -> None:
    patch_import(tree)
    patch_gate(tree)
    tree.change(COMMUNICATOR, HELPER, HELPER + "_is_sm120_supported = False\n")


def fake_not_imported(tree: Tree) -> None:
    patch_helper(tree)
    patch_gate(tree)


def fake_dead(tree: Tree) -> None:
    patch_import(tree)
    patch_helper(tree)
    end = "        and get_global_server_args().enable_flashinfer_allreduce_fusion\n    )\n"
    tree.change(COMMUNICATOR, end, f"{end}    return {RUNTIME_NEW}\n")


def fake_bare(tree: Tree) -> None:
    patch_import(tree)
    patch_helper(tree)
    head = "def apply_flashinfer_allreduce_fusion(batch_size: int):\n"
    tree.change(COMMUNICATOR, head, f"{head}    {RUNTIME_NEW}\n")


def fake_early_return(tree: Tree) -> None:
    patch_import(tree)
    patch_helper(tree)
    patch_gate(tree)
    head = "def apply_flashinfer_allreduce_fusion(batch_size: int):\n"
    tree.change(COMMUNICATOR, head, f"{head}    if _is_sm120_supported: return False\n")


def fake_shut(tree: Tree) -> None:
    patch_import(tree)
    patch_helper(tree)
    patch_gate(tree)
    term = "        and _is_flashinfer_available\n"
    tree.change(COMMUNICATOR, term, f"{term}        and not _is_sm120_supported\n")


@pytest.mark.parametrize("version", ["0.5.8", "0.5.9"])
@pytest.mark.parametrize(
    ("fake", "message"),
    [
        (fake_comment, "the nearest is _is_sm90_supported or _is_sm100_supported on line"),
        (fake_undefined, "undefined name _is_sm120_supported"),
        (fake_false, "is false, expected true"),
        (fake_not_imported, "is_sm120_supported on line "),
        (fake_dead, "stands in dead code"),
        (fake_bare, "is part of a statement whose value is dropped"),
        (fake_early_return, "is not reached, since _is_sm120_supported is true"),
        (fake_shut, "makes no difference beside not _is_sm120_supported"),
    ],
)
def test_fakes_that_a_search_for_text_lets_pass(
    release_tree: ReleaseTree, version: str, fake: Callable[[Tree], None], message: str
) -> None:
    tree = Tree(release_tree("sglang", version))
    fake(tree)
    text = r"_is_sm90_supported or _is_sm100_supported\)?[\s#]*or _is_sm120_supported"
    within = "apply_flashinfer_allreduce_fusion"
    wanted = Assertion("a", "sglang", COMMUNICATOR, pattern=text, within=within, scope="text")
    assert evaluate(wanted, tree.read(COMMUNICATOR), tree.read).ok
    findings = [
        tree.runtime(RUNTIME_NEW, 12, yields=True),
        tree.judge(COMMUNICATOR, defined=("is_sm120_supported",), within=within),
    ]
    wrong = [finding for finding in findings if not finding.ok]
    assert wrong
    assert any(message in finding.message for finding in wrong), wrong


def test_a_helper_that_the_release_does_not_have(release_tree: ReleaseTree) -> None:
    tree = Tree(release_tree("sglang", "0.5.9"))
    patch_import(tree)
    patch_helper(tree)
    patch_gate(tree)
    common = "sglang/srt/utils/common.py"
    tree.change(common, "\nis_sm120_supported = ", "\nis_sm121_supported = ")
    finding = tree.judge(COMMUNICATOR, defined=("is_sm120_supported",))
    assert "is bound nowhere in sglang/srt/utils/__init__.py" in finding.message


def test_the_gates_of_other_releases(release_tree: ReleaseTree) -> None:
    tree = Tree(release_tree("sglang", "0.5.7"))
    old = "is_sm90_supported() or is_blackwell_supported()"
    assert tree.startup(old, 12, yields=True).ok  # the bug that 0.5.8 undid
    assert not tree.startup(STARTUP_OLD, 12, yields=False).ok
    finding = tree.runtime(RUNTIME_OLD, 12, yields=False)
    assert "there is no def or class apply_flashinfer_allreduce_fusion" in finding.message


@pytest.mark.parametrize("version", ["0.6.1", "0.6.3"])
def test_the_real_list_of_flashinfer(release_tree: ReleaseTree, version: str) -> None:
    tree = Tree(release_tree("flashinfer-python", version))
    within = "gen_trtllm_comm_module"
    wanted = Literal_("supported_major_versions", (9, 10, 12))
    finding = tree.judge(JIT, literal=wanted, within=within)
    assert finding.message.endswith("does not hold 12: it holds 9, 10")
    old = "supported_major_versions=[9, 10]\n"
    tree.change(JIT, old, "supported_major_versions=[9, 10]  # [9, 10, 12]\n")
    assert not tree.judge(JIT, literal=wanted, within=within).ok
    assert not tree.judge(JIT, text="[9, 10, 12]", within=within).ok
    tree.changed.clear()
    tree.change(JIT, old, "supported_major_versions=[9, 10] + [12]\n")
    assert not tree.judge(JIT, literal=wanted, within=within).ok
    tree.changed.clear()
    tree.change(JIT, old, "supported_major_versions=[9, 10, 12]\n")
    finding = tree.judge(JIT, literal=wanted, within=within)
    assert finding.ok
    assert tree.judge(JIT, text="[9, 10, 12]", within=within).line == finding.line
    finding = tree.judge(JIT, literal=wanted, within="gen_trtllm_mnnvl_comm_module")
    assert "nothing is bound to supported_major_versions" in finding.message


def test_the_real_tables_of_symmetric_memory(release_tree: ReleaseTree) -> None:
    tree = Tree(release_tree("sglang", "0.5.9"))
    sizes = "sglang/srt/distributed/device_communicators/all_reduce_utils.py"
    symm = "sglang/srt/distributed/device_communicators/torch_symm_mem.py"
    name = "TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES"
    assert tree.judge(sizes, literal=Literal_(name, (9, 10))).ok
    assert not tree.judge(sizes, literal=Literal_(name, (12,))).ok
    multimem = Literal_("_WORLD_SIZES_MULTIMEM", (9, 10))
    assert tree.judge(symm, literal=multimem, within="TorchSymmMemCommunicator").ok
    assert tree.judge(symm, defined=(name,)).ok
    assert tree.judge(symm, defined=("is_cuda", "is_hip")).ok
