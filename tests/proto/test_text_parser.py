"""The text format: what parses to what, and what each fault says.

Expectations are messages built by hand, protobuf's own Python parser, and the recorded messages of the
original. That parser is no judge of refusals: it lets pass what the C++ one refuses.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from google.protobuf import text_format
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from caffe.errors import ParseError
from caffe.proto import caffe_pb2 as pb
from caffe.proto_text import parse_text
from proto_strategies import messages

GOLDEN = Path(__file__).parents[1] / "golden"


def net(text: str) -> pb.NetParameter:
    return parse_text(text, pb.NetParameter, "net.prototxt")


def layer(text: str) -> pb.LayerParameter:
    return parse_text(text, pb.LayerParameter)


def fault(text: str, cls: type[Message] = pb.NetParameter) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse_text(text, cls, "net.prototxt")
    return caught.value


# ---------------------------------------------------------------- what is read


@pytest.mark.parametrize(
    "text",
    [
        'name: "n" force_backward: true input_dim: 1 input_dim: 2',
        "name:'n',force_backward:true;input_dim:1,input_dim:2;",
        'name: "n"  # with "quotes" and { braces\nforce_backward: True # another\ninput_dim: [1, 2]',
        "#\nname: 'n'\r\nforce_backward: t\r\ninput_dim: [1]\r\ninput_dim: 0x2\r\n# no line end",
        'name\n:\n"n"\tforce_backward\v:\f1 input_dim:[ 01 , 0X02 ]',
        '\ufeffname: "" \'n\' "" force_backward: 0x1 input_dim: 1 input_dim: []input_dim: 2',
    ],
)
def test_ways_to_write_the_same(text: str) -> None:
    assert net(text) == pb.NetParameter(name="n", force_backward=True, input_dim=[1, 2])


@pytest.mark.parametrize(
    "text",
    [
        'layer { name: "a" } layer { name: "b" param { lr_mult: 1 } param { lr_mult: 2 } }',
        'layer: { name: "a" }; layer: < name: "b", param: < lr_mult: 1 >, param { lr_mult: 2; } >',
        'layer [{ name: "a" }, < name: "b" param: [{ lr_mult: 1, }, { lr_mult: 2 }]; >]',
        'layer: [{name:"a"}],layer[{name:"b"param[<lr_mult:1>,<lr_mult:2>]}]layer:[]',
    ],
)
def test_blocks_and_lists_of_blocks(text: str) -> None:
    expected = pb.NetParameter()
    expected.layer.add(name="a")
    second = expected.layer.add(name="b")
    second.param.add(lr_mult=1)
    second.param.add(lr_mult=2)
    assert net(text) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        ("1f", 1.0),
        ("1F", 1.0),
        ("-1.5f", -1.5),
        ("- 2", -2.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("5.f", 5.0),
        ("1e3", 1000.0),
        ("1E-3", 0.001),
        ("1.25e+2F", 125.0),
        ("0", 0.0),
        ("99999999999999999999999999", 1e26),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("Infinity", math.inf),
        ("-INF", -math.inf),
        ("1e39", math.inf),
        ("-1e999", -math.inf),
    ],
)
def test_floats(text: str, value: float) -> None:
    expected = pb.LayerParameter(loss_weight=[value])
    assert layer(f"loss_weight: {text}") == expected
    assert layer(f"loss_weight: [{text}]") == expected


def test_nan() -> None:
    assert math.isnan(layer("loss_weight: nan").loss_weight[0])
    assert math.isnan(layer("loss_weight: -NaN").loss_weight[0])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("017", 15),
        ("0x1F", 31),
        ("-2147483648", -(2**31)),
        ("2147483647", 2**31 - 1),
        ("-0x10", -16),
    ],
)
def test_integers(text: str, value: int) -> None:
    assert net(f"input_dim: {text}").input_dim == [value]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("True", True),
        ("t", True),
        ("1", True),
        ("01", True),
        ("false", False),
        ("False", False),
        ("f", False),
        ("0", False),
        ("0x0", False),
    ],
)
def test_booleans(text: str, value: bool) -> None:
    assert net(f"force_backward: {text}") == pb.NetParameter(force_backward=value)


def test_enums_by_name_and_number() -> None:
    for text in ("AVE", "1", "0x1"):
        assert layer(f"pooling_param {{ pool: {text} }}").pooling_param.pool == pb.PoolingParameter.AVE
    assert net("layers { type: CONVOLUTION }").layers[0].type == pb.V1LayerParameter.CONVOLUTION
    assert net("layers { type: 4 }").layers[0].type == pb.V1LayerParameter.CONVOLUTION


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"a\tb\n\"c\" \'d\' \\e\?"', "a\tb\n\"c\" 'd' \\e?"),
        (r"'\"'", '"'),
        ('"it\'s"', "it's"),
        (r'"\101\x42\X4a\7"', "ABJ\a"),
        (r'"\a\b\f\r\v"', "\a\b\f\r\v"),
        (r'"\u00e9\U0001F600"', "é\U0001f600"),
        (r'"\303\251" "\xc3\xA9"', "éé"),
        ('"é" \'\u6f22\' # comment\n "!"', "é\u6f22!"),
        ('"# no comment { }"', "# no comment { }"),
        ('""', ""),
    ],
)
def test_strings(text: str, value: str) -> None:
    assert net(f"name: {text}").name == value


def test_bytes_take_any_escape() -> None:
    assert parse_text(r'data: "\000\377" "\xfe"', pb.Datum).data == b"\x00\xff\xfe"


@pytest.mark.parametrize("text", ["", "  \n\t", "# only a comment", "\ufeff"])
def test_nothing_is_an_empty_message(text: str) -> None:
    assert net(text) == pb.NetParameter()


def test_an_empty_block_is_present() -> None:
    assert layer("pooling_param { }").HasField("pooling_param")


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("ceil_mode: false", "FLOOR"),
        ("ceil_mode: 0", "FLOOR"),
        ("ceil_mode: true", "CEIL"),
        ("kernel_size: 2, ceil_mode: f; stride: 2", "FLOOR"),
        ("round_mode: FLOOR", "FLOOR"),
        ("kernel_size: 2", "CEIL"),
    ],
)
def test_ceil_mode_of_the_forks(text: str, mode: str) -> None:
    number = pb.PoolingParameter.RoundMode.Value(mode)
    assert layer(f"pooling_param {{ {text} }}").pooling_param.round_mode == number
    assert net(f"layers {{ pooling_param < {text} > }}").layers[0].pooling_param.round_mode == number


STYLES = {
    "plain": {},
    "one line": {"as_one_line": True},
    "pointed": {"pointy_brackets": True},
    "short lists": {"use_short_repeated_primitives": True},
    "utf8": {"as_utf8": True},
}


@pytest.mark.parametrize("cls", [pb.NetParameter, pb.SolverParameter, pb.LayerParameter, pb.V1LayerParameter])
@pytest.mark.parametrize("style", STYLES)
@given(data=st.data())
@settings(max_examples=25)
def test_reads_what_protobuf_writes(cls: type[Message], style: str, data: st.DataObject) -> None:
    message = data.draw(messages(cls))
    assert parse_text(text_format.MessageToString(message, **STYLES[style]), cls) == message


def test_reads_the_recorded_files_as_protobuf_does() -> None:
    compared = 0
    for path in sorted(GOLDEN.rglob("*.prototxt")):
        cls = pb.SolverParameter if "solver" in path.name else pb.NetParameter
        text = path.read_text()
        try:
            expected = text_format.Parse(text, cls())
        except text_format.ParseError:
            continue
        if path.name != "clip_missing.prototxt":  # protobuf's Python parser does not look for required fields
            assert parse_text(text, cls) == expected, path
            compared += 1
    assert compared > 700


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("name", ["bad_enum", "clip_missing", "parse_error", "unterminated"])
def test_words_of_the_original(name: str) -> None:
    """After its position, what the original printed for each recorded parse error stands in ours."""
    recorded = json.loads((GOLDEN / "rejects" / "rejects.json").read_text())[name]["message"][0]
    words = recorded.split("caffe.NetParameter: ", 1)[1]
    words = words.split(": ", 1)[1] if words[0].isdigit() else words
    assert words in str(fault((GOLDEN / "rejects" / f"{name}.prototxt").read_text()))


def test_fault_shows_place_line_and_caret() -> None:
    error = fault('name: "n"\nlayer {\n\tname: "c"  bn: 1  # odd\n}\n')
    assert (error.path, error.line, error.column) == ("net.prototxt", 3, 13)
    lines = str(error).split("\n")
    assert lines[0] == 'net.prototxt:3:13: Message type "caffe.LayerParameter" has no field named "bn".'
    assert lines[1] == '    \tname: "c"  bn: 1  # odd'
    assert lines[2] == "    \t" + " " * len('name: "c"  ') + "^"


def test_fault_in_a_very_long_line_shows_a_part_of_it() -> None:
    error = fault("input_dim: 1 " * 100_000 + "odd: 1 " + "input_dim: 1 " * 100_000)
    assert (error.line, error.column) == (1, 1_300_001)
    lines = str(error).split("\n")
    assert lines[1].index("odd") == lines[2].index("^")
    assert max(map(len, lines)) < 300


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("layer {", 1, 8, "Expected identifier, got: end of file|layer[0], opened in line 1, is not closed"),
        ('layer {\n  name: "a"\n\nlayer {\n}\n', 4, 1, 'no field named "layer"|is a closing brace missing'),
        ("layer { } }", 1, 11, "Expected identifier, got: }|one closing brace too many"),
        ("layer < }", 1, 9, "Expected identifier, got: }|is closed with '>'"),
        ("{ }", 1, 1, "Expected identifier, got: {"),
        ("[caffe.x]: 1", 1, 1, "Expected identifier, got: ["),
        ('name: "a";;', 1, 11, "Expected identifier, got: ;"),
        ("input_dim 1", 1, 11, 'Expected ":", got: 1'),
        ("layer: 1", 1, 8, 'Expected "{", got: 1'),
        ("state [{ }]", 1, 7, 'Expected "{", got: ['),
        ("input_dim: [1 2]", 1, 15, 'Expected ",", got: 2'),
        ("input_dim: [1,]", 1, 15, "Expected integer, got: ]"),
        ("layer [{ } { }]", 1, 12, 'Expected ",", got: {'),
        ('name: "a" name: "b"', 1, 11, 'Non-repeated field "name" is specified multiple times.'),
        ("state { } state { }", 1, 11, 'Non-repeated field "state" is specified multiple times.'),
        ("input_dim: 2147483648", 1, 12, "Integer out of range (2147483648)|[-2147483648, 2147483647]"),
        ("input_dim: -2147483649", 1, 13, "Integer out of range"),
        ("input_dim: 1.0", 1, 12, "Expected integer, got: 1.0"),
        ("input_dim: 09", 1, 12, "Invalid number: 09|octal"),
        ("input_dim: 5state: 1", 1, 12, "Invalid number: 5state|Need space between number and identifier"),
        ("layer { loss_weight: 1.2.3 }", 1, 22, "Invalid number: 1.2.3"),
        ("layer { loss_weight: 0x10 }", 1, 22, "Expect a decimal number, got: 0x10"),
        ("layer { loss_weight: one }", 1, 22, "Expected double, got: one"),
        ("layer { transform_param { crop_size: -1 } }", 1, 38, "Expected integer, got: -|[0, 4294967295]"),
        ("force_backward: yes", 1, 17, 'Invalid value for boolean field "force_backward". Value: "yes".'),
        ("force_backward: 2", 1, 17, "Integer out of range (2)"),
        ('force_backward: "true"', 1, 17, 'Expected identifier, got: "true"|without quotes'),
        ("name: net", 1, 7, 'Expected string, got: net|in quotes: name: "net"'),
        ("name: 'a\nb'", 1, 7, "String literals cannot cross line boundaries."),
        ('name: "a', 1, 7, "String literals cannot cross line boundaries."),
        (r'name: "é\d"', 1, 9, r"Invalid escape sequence in string literal: \d"),
        (r'name: "\ud800"', 1, 8, r"Invalid escape sequence in string literal: \ud800"),
        (r'name: "\U00110000"', 1, 8, r"Invalid escape sequence in string literal: \U00110000"),
        (r'name: "\777"', 1, 8, r"Invalid escape sequence in string literal: \777"),
        (r'name: "\xff"', 1, 7, 'String field "name" contains invalid UTF-8 data'),
        ('name: "\udcff"', 1, 7, 'String field "name" contains invalid UTF-8 data'),
        ('name: "\ud800"', 1, 8, "cannot be written as UTF-8"),
        ("\udcff", 1, 1, "Byte 0xFF is not UTF-8."),
        ("name: \u201cn\u201d", 1, 7, "LEFT DOUBLE QUOTATION MARK"),
        ("name\uff1a 'n'", 1, 5, "FULLWIDTH COLON"),
        ("name: 'n' \x01", 1, 11, "Invalid control characters encountered in text: 0x01."),
        (
            "layer { clip_param { } }",
            1,
            9,
            "Message missing required fields: layer[0].clip_param.min, layer[0].cl",
        ),
        ("layer [{ }, { clip_param { max: 1 } }]", 1, 15, "missing required fields: layer[1].clip_param.min"),
        (
            "layer { pooling_param { pool: 7 } }",
            1,
            31,
            'Unknown enumeration value of "7" for field "pool".|MAX, AVE',
        ),
        ("layer { pooling_param { pool: -1 } }", 1, 31, 'Unknown enumeration value of "-1"'),
        ("layer { pooling_param { round_mode: CEIL ceil_mode: true } }", 1, 42, "multiple times.|ceil_mode"),
        ("layer { pooling_param { ceil_mode: maybe } }", 1, 36, 'boolean field "ceil_mode"'),
    ],
)
def test_faults(text: str, line: int, column: int, words: str) -> None:
    error = fault(text)
    assert (error.line, error.column) == (line, column)
    for part in words.split("|"):
        assert part in str(error)
    str(error).encode("utf-8")  # can be printed


def test_faults_of_messages_other_than_nets() -> None:
    assert "Message missing required fields: min, max" in str(fault("", pb.ClipParameter))
    assert "Message missing required fields: max" in str(fault("min: 1", pb.ClipParameter))


# ---------------------------------------------------------------- no text brings it down


WORDS = [
    "layer",
    "layers",
    "name",
    "type",
    "{",
    "}",
    "<",
    ">",
    "[",
    "]",
    ":",
    ",",
    ";",
    "-",
    '"a"',
    "'",
    "1",
    "1.5",
]
WORDS += [
    "0x",
    "1e",
    "\\",
    "#",
    "\n",
    "pooling_param",
    "ceil_mode",
    "clip_param",
    "true",
    "MAX",
    "\u00e9",
    "\udc80",
]


@given(st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join) | st.text(max_size=40))
@settings(max_examples=500)
def test_any_text_parses_or_is_a_parse_error(text: str) -> None:
    try:
        net(text)
    except ParseError as error:
        assert 1 <= error.line <= text.count("\n") + 1
        str(error).encode("utf-8")


@pytest.mark.parametrize(
    "text",
    [
        "layer { " * 10_000,
        "layers { layer { " * 10_000,
        "{" * 100_000,
        "layer [" * 10_000,
        'name: "' + "\\" * 1_000_001,
        'name: "' + "a" * 1_000_000,
        "input_dim: " + "9" * 1_000_000,
        "x" * 1_000_000,
        "layer { loss_weight: " + "9" * 1_000_000,
    ],
    ids=lambda text: text[:24],
)
def test_huge_nonsense_is_a_parse_error(text: str) -> None:
    assert len(str(fault(text))) < 2000


def test_a_hundred_thousand_adjacent_strings() -> None:
    assert net("name: " + '"a" ' * 100_000).name == "a" * 100_000


def test_a_large_net() -> None:
    block = 'layer { name: "l%d" type: "ReLU" bottom: "d" top: "d" relu_param { negative_slope: 0.5 } }\n'
    large = net("".join(block % i for i in range(20_000)))
    assert len(large.layer) == 20_000
    assert large.layer[19_999].name == "l19999"
    assert large.layer[19_999].relu_param.negative_slope == 0.5
