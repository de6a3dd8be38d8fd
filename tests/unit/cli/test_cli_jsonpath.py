"""kubectl's JSONPath: its documentation's own examples, and the corners that scripts rely on."""

from __future__ import annotations

import pytest

from fleetctl.cli.output.jsonpath import (
    VisitLimit,
    find_values,
    parse_path,
    parse_template,
    render_template,
)
from fleetctl.cli.output.select import sort_things
from fleetctl.common.errors import UsageError

# The document of kubernetes.io/docs/reference/kubectl/jsonpath/.
DOCUMENT: dict[str, object] = {
    "kind": "List",
    "items": [
        {
            "kind": "None",
            "metadata": {
                "name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1", "a": "x"},
            },
            "status": {
                "capacity": {"cpu": "4"},
                "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.1"}],
            },
        },
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.2"},
            "status": {
                "capacity": {"cpu": "8"},
                "addresses": [
                    {"type": "LegacyHostIP", "address": "127.0.0.2"},
                    {"type": "another", "address": "127.0.0.3"},
                ],
            },
        },
    ],
    "users": [
        {"name": "myself", "user": {}},
        {"name": "e2e", "user": {"username": "admin", "password": "secret"}},
    ],
    "numbers": [0, 1, 2, 3, 4],
    "mixed": [1, "1", True, None, 1.5],
    "none": None,
    "empty": [],
    "odd": {"a.b": 1, "c d": 2, "e/f": 3, "ключ": 4, "quote's": 5},
}  # fmt: skip

FROM_THE_DOCUMENTATION = [
    ("{.kind}", "List"),
    ("the {.kind}", "the List"),
    ("{.kind} is {@.items[0].metadata.name}", "List is 127.0.0.1"),
    ("{['kind']}", "List"),
    ("{..name}", "127.0.0.1 127.0.0.2 myself e2e"),
    ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
    (
        "{.items[*]['metadata.name', 'status.capacity']}",
        '127.0.0.1 127.0.0.2 {"cpu":"4"} {"cpu":"8"}',
    ),
    ('{.users[?(@.name=="e2e")].user.password}', "secret"),
    (
        "{range .items[*]}[{.metadata.name}, {.status.capacity}] {end}",
        '[127.0.0.1, {"cpu":"4"}] [127.0.0.2, {"cpu":"8"}] ',
    ),
    ("{range .items[*]}{.metadata.name}{'\\t'}{end}", "127.0.0.1\t127.0.0.2\t"),
    ('{range .items[*]}{.metadata.name}{"\\n"}{end}', "127.0.0.1\n127.0.0.2\n"),
    ("{.items[*].metadata.labels.kubernetes\\.io/hostname}", "127.0.0.1"),
    ("{.items[0:1].metadata.name}", "127.0.0.1"),
]

CORNERS = [
    ("", ""),
    ("no action", "no action"),
    (".kind", "List"),
    ("$.kind", "List"),
    ("{$.kind}", "List"),
    ("{ .kind }", "List"),
    ("{.missing}", ""),
    ("{.kind.deeper}", ""),
    ("a{.missing}b", "ab"),
    ("{.none}", "null"),
    ("{.none.x}", ""),
    ("{.none[0]}", ""),
    ("{.numbers}", "[0,1,2,3,4]"),
    ("{.numbers[*]}", "0 1 2 3 4"),
    ("{.numbers[-1]}", "4"),
    ("{.numbers[1:3]}", "1 2"),
    ("{.numbers[-2:]}", "3 4"),
    ("{.numbers[:-1]}", "0 1 2 3"),
    ("{.numbers[:2]}", "0 1"),
    ("{.numbers[::2]}", "0 2 4"),
    ("{.numbers[0:4:3]}", "0 3"),
    ("{.numbers[2:2]}", ""),
    ("{.numbers[0,-1,2]}", "0 4 2"),
    ("{.empty[*]}", ""),
    ("{.empty[:]}", ""),
    ("{.mixed[*]}", "1 1 true null 1.5"),
    ("{.mixed[?(@==1)]}", "1"),
    ('{.mixed[?(@=="1")]}', "1"),
    ("{.mixed[?(@==true)]}", "true"),
    ("{.numbers[?(@>2)]}", "3 4"),
    ("{.numbers[?(@ >= 2)]}", "2 3 4"),
    ("{.numbers[?(@!=2)]}", "0 1 3 4"),
    ("{.numbers[?(2>@)]}", "0 1"),
    ("{.odd.a\\.b}", "1"),
    ("{.odd['a\\.b']}", "1"),
    ("{.odd['c\\ d']}", "2"),
    ("{.odd.e/f}", "3"),
    ("{.odd.ключ}", "4"),
    ("{.odd.*}", "1 2 3 4 5"),
    ("{.items[?(@.metadata.labels)].metadata.name}", "127.0.0.1"),
    ("{.items[?(@.metadata.labels.a)].metadata.name}", "127.0.0.1"),
    ("{.items[?(@.status.capacity.cpu > '4')].metadata.name}", "127.0.0.2"),
    ("{.items[?(@.metadata.name!='127.0.0.1')].metadata.name}", "127.0.0.2"),
    ('{..addresses[?(@.type=="another")].address}', "127.0.0.3"),
    ("{.items[?(@.status.addresses[?(@.type=='another')])].metadata.name}", "127.0.0.2"),
    ("{.items[?(@.x=='a)]\"')].metadata.name}", ""),
    ("{.items[*].status.addresses[*].address}", "127.0.0.1 127.0.0.2 127.0.0.3"),
    (
        "{range .items[*]}{range .status.addresses[*]}{.address},{end};{end}",
        "127.0.0.1,;127.0.0.2,127.0.0.3,;",
    ),
    ("{range .numbers[1:3]}<{@}>{end}", "<1><2>"),
    ("{range .missing[*]}x{end}y", "y"),
    ('{"{"}{.kind}{"}"}', "{List}"),
    ("{'it\\'s'}", "it's"),
    ("{3}{true}", "3true"),
    ("{.items[0].metadata.name}\n", "127.0.0.1\n"),
]


@pytest.mark.parametrize(("template", "text"), FROM_THE_DOCUMENTATION)
def test_the_documentations_examples_print_what_it_says(template: str, text: str) -> None:
    assert render_template(parse_template(template), DOCUMENT) == text


@pytest.mark.parametrize(("template", "text"), CORNERS)
def test_templates_mean_what_kubectl_means_by_them(template: str, text: str) -> None:
    assert render_template(parse_template(template), DOCUMENT) == text


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{.a", "character 4: a `{` is not closed"),
        ("{range .items[*]}x", "a `{range}` has no `{end}`"),
        ("x{end}", "character 2: `{end}` closes no `{range}`"),
        ("{range .items[*]}{end x}", "`{end` takes nothing"),
        ("{kind}", "`kind` is not a field; write `.kind`"),
        ("{.items[}", "a `[` is not closed"),
        ("{.items[a]}", "`[a]` is neither"),
        ("{.items[]}", "`[]` is neither"),
        ("{.items[-]}", "`[-]` is neither"),
        ("{.items[?(@.a=~'x')]}", "`=~` is not one of == !="),
        ("{.items[?(@.a=>1)]}", "`=>` is not one of == !="),
        ("{.items[?(@.a==1}", "a `(` is not closed"),
        ("{.items[?(@.a==1) ]}", "a filter ends in `)]`"),
        ("{'open}", "a ' is not closed"),
        ("{!}", "character 2: `!` means nothing here"),
        ("{.numbers[9]}", "index `9` is out of bounds: the list has 5 members"),
        ("{.numbers[-6]}", "index `-6` is out of bounds"),
        ("{.numbers[0:9]}", "index `8` is out of bounds"),
        ("{.numbers[3:1]}", "begins at `3` and ends before, at `1`"),
        ("{.numbers[::0]}", "step is `0`"),
        ("{.kind[0]}", "`[0]` of `List`, which is not a list"),
        ("{.odd[0]}", "`[0]` of an object"),
        ("{.items[?(@..name==1)]}", ""),
        ("{.users[?(@.name=={.x)]}", "means nothing here"),
        ("{" + ".a[?(" * 60 + ")]" * 60 + "}", "filters in one another"),
        ("{range .a}" * 60 + "{end}" * 60, "ranges in one another"),
        ("x" * 20_000, "at most 16384 characters"),
    ],
)
def test_a_wrong_template_says_where_and_what(template: str, says: str) -> None:
    if not says:
        assert render_template(parse_template(template), DOCUMENT) == ""
        return
    with pytest.raises(UsageError) as caught:
        render_template(parse_template(template), DOCUMENT)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "text", [".metadata.name", "metadata.name", "{.metadata.name}", " {metadata.name} "]
)
def test_a_path_alone_may_be_written_in_four_ways(text: str) -> None:
    assert find_values(parse_path(text), {"metadata": {"name": "x"}}, VisitLimit()) == ["x"]


@pytest.mark.parametrize("text", ["", "{}", "{.a}{.b}", "a}"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_path(text)


DEEP: dict[str, object] = {"a": {"b": {"c": {"d": {"e": {"f": [{"g": 1}, {"g": 2}]}}}}}}


@pytest.mark.parametrize(
    "text",
    [
        "." * 200 + "g",
        "{" + "." * 200 + "g}",
        "{range ..}" * 40 + "{.g}" + "{end}" * 40,
        "{..[?(" + "@" + "." * 200 + "g==1)]}",
    ],
)
def test_a_path_with_many_descents_is_refused_in_time(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VisitLimit.__init__, "__defaults__", (100_000,))
    with pytest.raises(UsageError, match="comes past more than"):
        render_template(parse_template(text), DEEP)
    if text.startswith("."):
        objects = [{"metadata": DEEP}] * 100
        with pytest.raises(UsageError, match="comes past more than"):
            sort_things(objects, lambda it, _: it, text)


def test_one_descent_through_many_objects_is_found() -> None:
    objects = {"items": [{"spec": {"n": n, "rest": list(range(50))}} for n in range(5000)]}
    assert render_template(parse_template("{..n}"), objects) == " ".join(map(str, range(5000)))
