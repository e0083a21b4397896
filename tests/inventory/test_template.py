"""Templates: native values, laziness, errors at their place, and secrets that stay secret."""

from __future__ import annotations

import pytest

from fleet.core.errors import InputError, Position
from fleet.core.secret import Secret
from fleet.core.template import SecretTemplate, Templar, Unsafe

PASSWORD = Secret("open-sesame", "pw")
VARIABLES = {
    "n": 1,
    "huge": float("inf"),
    "m": "{{ n }}",
    "text": "x{{ m }}",
    "items_": [1, "{{ text }}"],
    "pw": PASSWORD,
    "reg": {"password": Secret("deep-secret", "reg"), "url": "http://r", "keys": 5},
    "many": [PASSWORD, "plain"],
    "loop_a": "{{ loop_b }}",
    "loop_b": "{{ loop_a }}",
    "broken": "{{ nowhere }}",
    "raw": Unsafe("{{ n }}"),
    "hidden": SecretTemplate("v-{{ n }}", "hidden"),
}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("plain", "plain"),
        ("{{ 5 }}", 5),
        ("{{ true }}", True),
        ("{{ none }}", None),
        ("{{ [1, 'a'] }}", [1, "a"]),
        ("{{ m }}", 1),
        ("{{ text }}", "x1"),
        ("{{ items_ }}", [1, "x1"]),
        ("v{{ n }}.{{ m }}", "v1.1"),
        ("{{ '1' }}", "1"),
        ("{{ reg.keys }}", 5),
        ("{{ reg['url'] }}", "http://r"),
        ("{{ nowhere | default('d') }}", "d"),
        ("{{ nowhere is defined }}", False),
        ("{{ raw }}", "{{ n }}"),
        ("{% for i in items_ %}{{ i }};{% endfor %}", "1;x1;"),
        ("{{ 'yes' | bool }}", True),
        ("{{ '535.183.06' is version('535.288.01', '<') }}", True),
        ("{{ '550.120' is version('550.90.07', '>') }}", True),
        ("{{ {'a': {'b': 1}} | combine({'a': {'c': 2}}, recursive=true) }}", {"a": {"b": 1, "c": 2}}),
        ("{{ [reg] | map(attribute='url') | list }}", ["http://r"]),
        ("{{ pw is defined }}", True),
        ("{{ pw | length }}", 11),
        ({"a": ["{{ n }}", {"b": "{{ m }}"}]}, {"a": [1, {"b": 1}]}),
        (7, 7),
    ],
)
def test_values(source, value):
    rendered = Templar(VARIABLES).render(source)
    assert rendered == value
    assert isinstance(rendered, type(value))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ pw }}", "open-sesame"),
        ("p={{ pw }}", "p=open-sesame"),
        ("{{ 'a' ~ pw }}", "aopen-sesame"),
        ("{{ reg.password }}", "deep-secret"),
        ("{{ reg['password'] | upper }}", "DEEP-SECRET"),
        ("{{ pw | b64encode }}", "b3Blbi1zZXNhbWU="),
        ("{% for p in many %}{{ p }} {% endfor %}", "open-sesame plain "),
        ("{{ many | join('+') }}", "open-sesame+plain"),
        ("{% set p = pw %}{{ p }}", "open-sesame"),
        ("{{ reg | to_json }}", '{"password": "deep-secret", "url": "http://r", "keys": 5}'),
        ("{{ hidden }}", "v-1"),
    ],
)
def test_what_uses_a_secret_is_a_secret(source, text):
    rendered = Templar(VARIABLES).render(source)
    assert isinstance(rendered, Secret)
    assert rendered.reveal() == text
    assert text not in repr(rendered)


def test_what_lies_beside_a_secret_is_not_one():
    assert Templar(VARIABLES).render("{{ reg }}")["url"] == "http://r"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ nowhere }}", "'nowhere' is undefined"),
        ("{{ broken }}", "'nowhere' is undefined"),
        ("{{ reg.port }}", "has no attribute 'port'"),
        ("{{ loop_a }}", "loop_a needs itself: loop_a → loop_b → loop_a"),
        ("{{ n", "is not a template"),
        ("{% if %}", "is not a template"),
        ("{{ n | nofilter }}", "No filter named 'nofilter'"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ n + 'a' }}", "TypeError"),
        ("{{ lookup('env', 'HOME') }}", "use !secret env|file|command"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ pw | from_json }}", "fails on a secret value"),
        ("{{ '{' | from_json }}", "it is not JSON: "),
        ("{{ '' | from_json }}", "it is not JSON: "),
        ("{{ '[NaN]' | from_json }}", "it is not JSON: "),
        ("{{ '[1e999]' | from_json }}", "1e999 is not a number that can be used"),
        ('{{ \'{"a": 1, "a": 2}\' | from_json }}', "a is here for the second time"),
        ("{{ ('[' * 200) | from_json }}", "levels deep"),
        ("{{ huge | to_json }}", "JSON"),
        ("{{ huge | to_nice_json }}", "JSON"),
    ],
)
def test_errors_stand_at_the_values_place(source, words):
    with pytest.raises(InputError) as caught:
        Templar(VARIABLES).render(source, Position("f.yml", 3, 7))
    assert str(caught.value).startswith("f.yml:3:7: ")
    assert words in str(caught.value)
    assert "sesame" not in str(caught.value)


def test_only_what_is_used_is_rendered():
    assert Templar({"a": "{{ nowhere }}", "b": 2}).render("{{ b }}") == 2


def test_expressions_filters_and_tests_of_the_caller():
    templar = Templar(
        {"n": 3}, filters={"twice": lambda value: value * 2}, tests={"small": lambda value: value < 5}
    )
    assert templar.expression("n | twice is small") is False
    assert templar.expression("n is small") is True
