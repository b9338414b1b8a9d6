"""The settings file: text to key-value pairs, pairs to typed settings, and errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raptormq.config_file import (
    changed_properties,
    choice,
    clamp_warnings,
    clamped,
    dump_settings,
    format_properties,
    integer,
    known_keys,
    load_settings,
    parse_bool,
    parse_properties,
    read_properties,
    setting,
    size,
    size_or_none,
    size_up_to,
    unknown_key_warnings,
)
from raptormq.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Inner:
    limit: int = setting(4096, "limitBytes", "oldLimit", parse=size(1))
    mode: str = setting("FAST", "mode", parse=choice("FAST", "SAFE"))


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str = setting(lambda: "made", "name")
    port: int = setting(9876, "listenPort", parse=integer(0, 65_535))
    enabled: bool = setting(False, "enabled", parse=parse_bool)
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=1\nb = 2 \n c:3\nd 4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# note\n! note\n\na=x=y:z\n", {"a": "x=y:z"}),
        ("a=1\na=2\n", {"a": "2"}),
        ("long=one,\\\n    two\nnext=3", {"long": "one,two", "next": "3"}),
        ("path=C\\:\\\\dir\nuni=\\u00e9", {"path": "C:\\dir", "uni": "é"}),
        ("pair=\\ud83d\\ude00", {"pair": "\U0001f600"}),
        ("empty=\nalone", {"empty": "", "alone": ""}),
        ("end=1\\", {"end": "1"}),
        ("a=1\r\nb=2\r\n", {"a": "1", "b": "2"}),
    ],
)
def test_properties_text(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


def test_bad_unicode_escape_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"setting 'a': an escape is not \\u and four hexadecimal digits$"):
        parse_properties("a=secret\\uzz")


@pytest.mark.parametrize("text", ["a=x\\ud800", "a\\udc00=x", "a=\\ude00\\ud83d"])
def test_half_a_character_is_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"setting '\S+': an escape is an unpaired surrogate$"):
        parse_properties(text)


def test_missing_file_and_binary_file_are_config_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read settings file .*none\.conf: No such file"):
        read_properties(tmp_path / "none.conf")
    (tmp_path / "binary.conf").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.conf is not UTF-8 text in line 1: save the file as UTF-8$"):
        read_properties(tmp_path / "binary.conf")


def test_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("a=1\nb=\ufeff2\n", encoding="utf-8-sig")
    assert read_properties(path) == {"a": "1", "b": "\ufeff2"}
    path.write_text("# note\na=1\n", encoding="utf-8-sig")
    assert read_properties(path) == {"a": "1"}
    assert changed_properties("\ufeffa=0\nb=2\n", {"a": "1"}) == "a=1\nb=2\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("# 订单\n  ! 乗\na=1\n", None),
        ("a=1\n# 订单\nb=订单\n", 3),
        ("a=1\r\nb=1\r\n订单=2\r\n", 3),
        ("a=1\nb=2,\\\n  3,\\\n  订单\nc=4\n", 4),
        ("\n\na=1 # 订单\n", 3),
    ],
)
def test_other_encoding_is_accepted_in_comments_and_refused_in_values_with_the_line(
    tmp_path: Path, text: str, line: int | None
) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(text.encode("gbk"))
    if line is None:
        assert read_properties(path) == {"a": "1"}
        return
    with pytest.raises(ConfigError, match=f"broker.conf is not UTF-8 text in line {line}: save the file as UTF-8$"):
        read_properties(path)


def test_comment_behind_a_text_is_refused_and_a_number_sign_is_not() -> None:
    assert load_settings(Outer, {"name": "a#1"}).name == "a#1"
    for text in ("a # note", "a\t#note", "a  #"):
        with pytest.raises(ConfigError, match=r"setting name = .* expected a value without a comment"):
            load_settings(Outer, {"name": text})


def test_defaults_and_groups() -> None:
    settings = load_settings(Outer, {"listenPort": "1", "oldLimit": "2K", "enabled": "TRUE"})
    assert settings == Outer(name="made", port=1, enabled=True, inner=Inner(limit=2048))


def test_first_key_wins_over_its_alias() -> None:
    assert load_settings(Inner, {"oldLimit": "1", "limitBytes": "2"}).limit == 2


@pytest.mark.parametrize(
    ("text", "expected"), [("1024", 1024), ("4K", 4096), ("4kb", 4096), ("2M", 2 << 20), ("1GiB", 1 << 30)]
)
def test_sizes(text: str, expected: int) -> None:
    assert size(1)(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("2K", 2048), ("15M", 15 << 20), ("256M", 15 << 20), ("1G", 15 << 20)])
def test_sizes_beyond_a_limit_count_as_it(text: str, expected: int) -> None:
    assert size_up_to(15 << 20)(text) == expected


@dataclass(frozen=True, kw_only=True)
class Clamped:
    ratio: int = setting(75, "ratio", "oldRatio", parse=clamped(10, 95))
    outer: Outer = field(default_factory=Outer)


def test_numbers_beyond_a_range_count_as_its_limit_with_a_warning() -> None:
    for text, value in (("100", 95), ("-7", 10), ("9", 10), ("96", 95)):
        assert load_settings(Clamped, {"ratio": text}).ratio == value
        assert clamp_warnings(Clamped, {"oldRatio": text, "name": "n"}) == [
            f"setting oldRatio = {text!r} counts as {value}, because the range is 10 to 95"
        ]
    assert clamp_warnings(Clamped, {"ratio": "10", "oldRatio": "1"}) == clamp_warnings(Clamped, {"ratio": "95"}) == []
    for text in ("", "9.5", "95%", str(1 << 31)):
        with pytest.raises(ConfigError, match=r"setting ratio = .* is not usable: expected a whole number"):
            load_settings(Clamped, {"ratio": text})


def test_a_size_may_be_switched_off_but_not_be_too_small() -> None:
    parse = size_or_none(96 << 20)
    assert (parse("0"), parse("96M"), parse("1G")) == (0, 96 << 20, 1 << 30)
    for text in ("1", "16M", "95M"):
        with pytest.raises(ValueError, match=r"^0, or a size in bytes from 96M, with"):
            parse(text)
    with pytest.raises(ValueError, match=r"a size in bytes"):
        parse("-1")


@pytest.mark.parametrize(
    ("pairs", "complaint"),
    [
        ({"listenPort": "65536"}, "listenPort = '65536' is not usable: expected a whole number from 0 to 65535"),
        ({"listenPort": "ten"}, "listenPort = 'ten'"),
        ({"listenPort": ""}, "listenPort = ''"),
        ({"enabled": "yes"}, "enabled = 'yes' is not usable: expected true or false"),
        ({"mode": "fast"}, "mode = 'fast' is not usable: expected one of FAST, SAFE"),
        ({"limitBytes": "0"}, "limitBytes = '0'"),
        ({"limitBytes": "4X"}, "limitBytes = '4X'"),
        ({"limitBytes": "-1K"}, "limitBytes = '-1K'"),
        ({"limitBytes": "KM"}, "limitBytes = 'KM'"),
        ({"limitBytes": "1KM"}, "limitBytes = '1KM'"),
    ],
)
def test_bad_value_names_key_value_and_expectation(pairs: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(Outer, pairs)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_key_names_the_nearest() -> None:
    warnings = unknown_key_warnings({"listenport": "1", "mdoe": "FAST", "zzz": "1", "mode": "SAFE"}, known_keys(Outer))
    assert warnings == [
        "unknown setting listenport is ignored, did you mean listenPort?",
        "unknown setting mdoe is ignored, did you mean mode?",
        "unknown setting zzz is ignored",
    ]


def test_dump_is_the_inverse_of_load() -> None:
    settings = Outer(name="n", port=7, enabled=True, inner=Inner(limit=5, mode="SAFE"))
    pairs = dump_settings(settings)
    assert pairs == {"name": "n", "listenPort": "7", "enabled": "true", "limitBytes": "5", "mode": "SAFE"}
    assert load_settings(Outer, pairs) == settings


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("", "a=1\n"),
        ("b=2", "b=2\na=1\n"),
        ("# a=0\na=0\nb=2\n", "# a=0\na=1\nb=2\n"),
        ("a : 0\n! c\n", "a=1\n! c\n"),
        ("a = 0\\\n  0\nb=2\n", "a=1\nb=2\n"),
        ("a=0\nb=2\na=3\n", "a=1\nb=2\n"),
        ("b=2\\", "b=2\na=1\n"),
    ],
)
def test_changed_properties_touch_nothing_else(text: str, changed: str) -> None:
    assert changed_properties(text, {"a": "1"}) == changed
    assert parse_properties(changed)["a"] == "1"


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("\\\n\r\v\f\x1c\x85\u2028")))
@example("C:\\store\nnext\rline\\")
@example("x\u2028b=2")
def test_any_value_is_escaped_as_the_format_needs(text: str) -> None:
    value = f"<{text}>"  # spaces around a value are not part of it
    assert parse_properties(format_properties({"a": value, "b": "1"})) == {"a": value, "b": "1"}
    assert parse_properties(changed_properties("", {"a": value}))["a"] == value
