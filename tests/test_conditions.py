"""Conditions over facts: the grammar, errors with their place, and three-valued meaning."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from patchkit.conditions import (
    FACTS,
    PACKAGES,
    Comparison,
    Condition,
    ConditionError,
    Fact,
    Group,
    Node,
    Text,
    changes,
    parse,
)

NAMES = [*FACTS, *PACKAGES]
MACHINE = {"cuda": "12.8", "sm": "12.0", "nvlink": "false", "flashinfer-python": "0.6.3"}


@pytest.mark.parametrize(
    "text, expected",
    [
        ('cuda >= "13"', False),
        ('cuda >= "12.8"', True),
        ("cuda>='12.8'", True),
        ('cuda ~= "12.4"', True),
        ('cuda == "12.*"', True),
        ('cuda != "12.8.0"', False),
        ('"13" > cuda', True),
        ('sm == "12"', True),
        ('sm in "9.0, 10.0 12.0"', True),
        # A release is no part of a release, though "2.0" stands in "12.0".
        ('"2.0" in sm', False),
        ('sm not in "9.0 10.0"', True),
        ('nvlink == "true"', False),
        ('nvlink == "true" or sm == "12.0"', True),
        ('nvlink == "true" and sm == "12.0"', False),
        ('flashinfer_python >= "0.6.17" or cuda >= "13"', False),
        ('Flashinfer.Python < "0.6.17"', True),
        # "and" binds before "or".
        ('sm == "12.0" or nvlink == "true" and cuda >= "13"', True),
        ('(sm == "12.0" or nvlink == "true") and cuda >= "13"', False),
        ('cuda > "12.10"', False),
        ('cuda < "12.10"', True),
        ("cuda == sm", False),
        ("cuda > sm", True),
    ],
)
def test_a_condition_means_what_it_says(text: str, expected: bool) -> None:
    assert parse(text).holds(MACHINE) is expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ('torch >= "2.8"', None),
        ('torch != "2.8"', None),
        ('torch >= "2.8" or sm == "12.0"', True),
        ('torch >= "2.8" or cuda >= "13"', None),
        ('torch >= "2.8" and sm == "12.0"', None),
        ('torch >= "2.8" and cuda >= "13"', False),
    ],
)
def test_a_fact_that_is_absent_leaves_unknown_what_it_would_decide(
    text: str, expected: bool | None
) -> None:
    assert parse(text).holds(MACHINE) is expected


@pytest.mark.parametrize(
    "text, facts, expected",
    [
        ('torch == "2.9.1"', {"torch": "2.9.1+cu128"}, True),
        ('torch == "2.9.1+cu130"', {"torch": "2.9.1+cu128"}, False),
        ('torch >= "2.9.1+cu128"', {"torch": "2.9.1+cu128"}, True),
        ("torch <= triton", {"torch": "2.9.1+cu128", "triton": "3.5.1+git1"}, True),
        ('torch >= "2.10"', {"torch": "2.10.0rc1"}, False),
        ('torch >= "2.10"', {"torch": "2.11.0rc1"}, True),
        ('driver >= "580"', {"driver": "590.48.01"}, True),
        ('gpu == "NVIDIA H200"', {"gpu": "NVIDIA H200"}, True),
        ('"RTX PRO" in gpu', {"gpu": "NVIDIA RTX PRO 6000"}, True),
        ('"H200" not in gpu', {"gpu": "NVIDIA RTX PRO 6000"}, True),
        # An order is asked of what has none.
        ('gpu >= "13"', {"gpu": "NVIDIA H200"}, None),
    ],
)
def test_releases_compare_by_pep_440_and_other_texts_as_they_are(
    text: str, facts: dict[str, str], expected: bool | None
) -> None:
    assert parse(text).holds(facts) is expected


@pytest.mark.parametrize(
    "text, column, message",
    [
        ("", 1, "expected the name of a fact, a text in quotation marks or '(', found the end"),
        ("cuda >= 13", 9, "found '13'"),
        ('cudaa >= "13"', 1, "no fact is called 'cudaa'; did you mean 'cuda'?"),
        ('sm == "12.0" and flash-infer-python >= "1"', 18, "did you mean 'flashinfer-python'?"),
        ('cuda "13"', 6, "expected an operator"),
        ('cuda = "13"', 6, "equality is '=='"),
        ('(cuda >= "13"', 14, "the ')' for the '(' at column 1, found the end"),
        ('cuda >= "13")', 13, "expected 'and', 'or' or the end, found ')'"),
        ('cuda >= "13" and', 17, "found the end"),
        ('cuda >= "13" nvlink == "true"', 14, "expected 'and', 'or' or the end"),
        ('cuda >= "13', 9, 'the quotation mark " is never closed'),
        ('"13" == "13"', 1, "two texts are compared"),
        ('gpu < "a card"', 7, "compares releases, and 'a card' is none"),
        ('cuda ~= "13"', 9, "two parts or more"),
        ('cuda not "13"', 10, "expected 'in' behind 'not'"),
        ('"" in gpu', 1, "the text is empty"),
        ("cuda >= “13”", 9, "has no place in a condition"),
        ("(" * 51 + 'cuda == "1"' + ")" * 51, 51, "more than 50 brackets"),
        ("cuda == " * 600, 1, "the most"),
    ],
)
def test_an_error_names_its_column_and_what_was_expected(
    text: str, column: int, message: str
) -> None:
    with pytest.raises(ConditionError) as caught:
        parse(text)
    assert message in caught.value.message
    assert caught.value.column == column
    assert f"at column {column}:" in caught.value.message


def test_an_error_points_at_the_place() -> None:
    with pytest.raises(ConditionError) as caught:
        parse('cuda >= "13" xor nvlink == "true"')
    text, pointer = caught.value.detail
    assert text[pointer.index("^") :].startswith("xor")


def test_names_are_those_asked_for_each_once() -> None:
    condition = parse('cuda >= "13" or (sm == "12.0" and cuda < "14") or "x" in gpu')
    assert condition.names == ("cuda", "sm", "gpu")


def test_changes_tell_what_differs_and_what_came() -> None:
    now = {"cuda": "13.0", "sm": "12.0"}
    assert changes(("cuda", "sm", "nvlink", "torch"), MACHINE, now) == [
        ("cuda", "12.8", "13.0"),
        ("nvlink", "false", None),
    ]


# -- properties -------------------------------------------------------------------------

releases = st.builds(
    lambda parts, tail: ".".join(map(str, parts)) + tail,
    st.lists(st.integers(0, 30), min_size=2, max_size=3),
    st.sampled_from(["", "rc1", ".post1"]),
)
texts = st.one_of(
    releases,
    st.text(st.characters(codec="ascii", exclude_characters="\"'\r\n"), min_size=1, max_size=8),
)
names = st.sampled_from(NAMES)
orders = st.sampled_from(["<", "<=", ">", ">=", "~="])
others = st.sampled_from(["==", "!=", "in", "not in"])
comparisons = st.one_of(
    st.builds(Comparison, names.map(Fact), orders, releases.map(Text)),
    st.builds(Comparison, names.map(Fact), others, texts.map(Text)),
    st.builds(Comparison, texts.map(Text), others, names.map(Fact)),
    st.builds(Comparison, names.map(Fact), others, names.map(Fact)),
)


def _groups(parts: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.builds(
        Group,
        st.sampled_from(["and", "or"]),
        st.lists(parts, min_size=2, max_size=3).map(tuple),
    )


nodes: st.SearchStrategy[Node] = st.recursive(comparisons, _groups, max_leaves=8)
machines = st.dictionaries(names, texts, max_size=12)


@given(nodes)
def test_what_is_written_reads_as_the_same(node: Node) -> None:
    assert parse(str(Condition(node))) == Condition(node)


@given(nodes, machines)
def test_every_condition_has_a_value_on_every_machine(node: Node, facts: dict[str, str]) -> None:
    assert Condition(node).holds(facts) in (True, False, None)


@given(nodes, machines, machines)
def test_what_is_decided_stays_so_whatever_else_becomes_known(
    node: Node, facts: dict[str, str], more: dict[str, str]
) -> None:
    value = Condition(node).holds(facts)
    if value is not None:
        assert Condition(node).holds({**more, **facts}) is value


@given(nodes, machines)
def test_only_the_facts_named_count(node: Node, facts: dict[str, str]) -> None:
    condition = Condition(node)
    kept = {name: value for name, value in facts.items() if name in condition.names}
    assert condition.holds(kept) is condition.holds(facts)


@given(st.lists(st.sampled_from([True, False, None]), min_size=2, max_size=4))
def test_and_and_or_are_those_of_every_completion(values: list[bool | None]) -> None:
    """A joined condition is decided just where each way of filling in the unknown ones agrees."""
    known = {True: ("cuda", "1"), False: ("cuda", "2"), None: ("torch", "1")}
    parts = tuple(Comparison(Fact(n), "==", Text(t)) for n, t in (known[v] for v in values))
    ways = itertools.product(*([value] if value is not None else [True, False] for value in values))
    filled = list(ways)
    for word, together in (("and", all), ("or", any)):
        outcomes = {together(way) for way in filled}
        expected = outcomes.pop() if len(outcomes) == 1 else None
        assert Condition(Group(word, parts)).holds({"cuda": "1"}) is expected


@given(releases, releases, st.sampled_from(["==", "!=", "<=", ">="]))
def test_releases_are_ordered_as_packaging_orders_them(one: str, other: str, operator: str) -> None:
    a, b = Version(one), Version(other)
    expected = {"==": a == b, "!=": a != b, "<=": a <= b, ">=": a >= b}[operator]
    assert parse(f'cuda {operator} "{other}"').holds({"cuda": one}) is expected


@given(st.text(max_size=40))
def test_any_text_is_a_condition_or_an_error_with_a_place(text: str) -> None:
    column = 1
    try:
        parse(text)
    except ConditionError as error:
        column = error.column
    assert 1 <= column <= len(text) + 1


@pytest.mark.parametrize("text", ['cuda >= "13"', 'cuda == "13"', 'cuda in "13, 14"'])
def test_a_release_of_thousands_of_digits_is_none(text: str) -> None:
    assert parse(text).holds({"cuda": "9" * 5000}) in (None, False)


def test_a_text_cannot_make_another_operator() -> None:
    assert parse('cuda == "=12.8"').holds({"cuda": "12.8"}) is False
