"""Command lines by gflags' rules. Expectations are gflags' documented behaviour."""

from __future__ import annotations

import click
import pytest

from caffe_tools import gflags

FLAGS = gflags.table(
    [
        click.Option(["-solver", "--solver"], default="", help="the solver"),
        click.Option(["-iterations", "--iterations"], type=click.INT, default=50),
        click.Option(["-gray", "--gray"], type=click.BOOL, default=False),
        click.Option(["--shuffle/--keep-order"], default=False),
        click.Option(["--check_size"], is_flag=True),
        click.Option(["--from"], multiple=True),
    ]
)


def parse(line: str) -> tuple[dict[str, list[str]], list[str]]:
    return gflags.parse(line.split(" ") if line else [], FLAGS)


@pytest.mark.parametrize("line", ["-solver x", "-solver=x", "--solver x", "--solver=x"])
def test_four_ways_to_give_a_value(line):
    assert parse(line) == ({"solver": ["x"]}, [])


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("-gray", "true"),
        ("--gray", "true"),
        ("-nogray", "false"),
        ("-gray=false", "false"),
        ("--gray=F", "false"),
    ]
    + [("-gray=1", "true"), ("-gray=Yes", "true"), ("-gray=0", "false"), ("-gray=no", "false")],
)
def test_booleans(line, value):
    assert parse(f"{line} word") == ({"gray": [value]}, ["word"])


def test_a_value_may_look_like_anything():
    assert parse("-solver -iterations") == ({"solver": ["-iterations"]}, [])
    assert parse("-solver=a=b") == ({"solver": ["a=b"]}, [])
    assert parse("-solver=") == ({"solver": [""]}, [])


def test_flags_stand_anywhere_and_the_last_wins():
    values, words = parse("train -iterations 1 more -solver x -iterations=2")
    assert values == {"iterations": ["2"], "solver": ["x"]}
    assert words == ["train", "more"]


def test_a_repeatable_flag_keeps_all():
    assert parse("-from a --from=b")[0] == {"from": ["a", "b"]}


def test_two_dashes_end_the_flags_and_one_is_a_word():
    assert parse("- -gray -- -solver x") == ({"gray": ["true"]}, ["-", "-solver", "x"])


def test_underscores_and_dashes_are_the_same():
    assert parse("--check-size")[0] == {"check_size": ["true"]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-sover x", "unknown command line flag 'sover'; did you mean 'solver'?"),
        ("--iteration=3", "unknown command line flag 'iteration'; did you mean 'iterations'?"),
        ("-nosolver", "unknown command line flag 'nosolver'"),
        ("-solver", "flag '-solver' is missing its argument"),
        ("-gray=maybe", "illegal value 'maybe' specified for bool flag 'gray'"),
        ("-flagfile", "flag '-flagfile' is missing its argument"),
        ("-flagfile=nothing", "cannot read nothing"),
    ],
)
def test_refusals(line, message):
    with pytest.raises(click.UsageError) as error:
        parse(line)
    assert message in error.value.message


def test_flag_files(tmp_path):
    (tmp_path / "flags").write_text("# a comment\n\n-solver=x y\n--iterations 7\n-gray\n--flagfile=more\n")
    (tmp_path / "more").write_text("-iterations=8\nother* convert_?\n-nogray\ncaffe\n-shuffle\n")
    values, words = parse("--flagfile=flags word")
    assert values == {"solver": ["x y"], "iterations": ["8"], "gray": ["true"], "shuffle": ["true"]}
    assert words == ["word"]
    assert parse("-flagfile flags,more -iterations 9")[0]["iterations"] == ["9"]


def test_a_flag_file_that_a_windows_editor_saved(tmp_path):
    (tmp_path / "flags").write_bytes(b"\xef\xbb\xbf-solver=x\r\n-gray\r\n")
    assert parse("-flagfile=flags")[0] == {"solver": ["x"], "gray": ["true"]}


def test_no_flag_file():
    assert parse("-flagfile= -solver=x")[0] == {"solver": ["x"]}


def test_a_circle_of_flag_files(tmp_path):
    (tmp_path / "a").write_text("-flagfile=b\n")
    (tmp_path / "b").write_text("-flagfile=a\n")
    with pytest.raises(click.UsageError, match="a reads b reads a: a circle"):
        parse("-flagfile=a")


def test_binary_flag_file(tmp_path):
    (tmp_path / "a").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(click.UsageError, match="cannot read a: it is no text"):
        parse("-flagfile=a")


def test_click_reads_what_is_spelled():
    command = click.Command("x", params=[*dict.fromkeys(FLAGS.values()), click.Argument(["words"], nargs=-1)])
    values, words = parse("-gray=f a -solver -x -noshuffle -check_size -iterations 3 -from 1 -from=2 -- -b")
    context = command.make_context("x", gflags.spell(values, words, FLAGS))
    assert context.params == {
        "solver": "-x",
        "iterations": 3,
        "gray": False,
        "shuffle": False,
        "check_size": True,
        "from": ("1", "2"),
        "words": ("a", "-b"),
    }


@pytest.mark.parametrize(
    ("line", "command", "rest"),
    [
        ("train -solver x", "train", "-solver x"),
        ("-solver train train", "train", "-solver train"),
        ("-solver=train test", "test", "-solver=train"),
        ("-gray convert x", "convert", "-gray x"),
        ("-unknown 3 convert", "convert", "-unknown 3"),
        ("-unknown convert", "convert", "-unknown"),
        ("-solver x fly", "fly", "-solver x"),
        ("-solver x", None, "-solver x"),
        ("-- train", None, "-- train"),
        ("", None, ""),
    ],
)
def test_which_word_is_the_command(line, command, rest):
    argv = line.split(" ") if line else []
    found, left = gflags.split_command(argv, ("train", "test", "convert"), FLAGS)
    assert found == command
    assert " ".join(left) == rest
