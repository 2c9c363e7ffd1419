"""Command lines by the rules of gflags, before click reads them.

    -flag value   -flag=value   --flag value   --flag=value     all mean the same
    -flag   -noflag   -flag=false                               for booleans, which never take the next word
    --flagfile=names                                            flags from files, one per line, # for comments
    --                                                          only words after this

Flags stand before, between or after the other words; the last one wins; - and _ are the same in names.
A flag that takes a value takes the next word, whatever it looks like.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from caffe.errors import closest

_TRUE = ("1", "t", "true", "y", "yes")
_FALSE = ("0", "f", "false", "n", "no")

# Name of each flag -> its option. Names are as the option declares them, without dashes.
Table = Mapping[str, click.Option]
# What a command line holds, in order: (flag, value), or (None, word).
Items = Iterator[tuple[str | None, str]]


def table(options: Iterable[click.Parameter]) -> dict[str, click.Option]:
    """The flags among a click command's parameters."""
    flags = {}
    for option in options:
        if isinstance(option, click.Option):
            for name in option.opts:
                flags[_plain(name)] = option
    return flags


def parse(
    argv: Sequence[str], flags: Table, program: str = "caffe"
) -> tuple[dict[str, list[str]], list[str]]:
    """({flag: its last value, or all values of one that may be repeated}, the words).

    Booleans are "true" or "false". Raises click.UsageError for an unknown flag, with the closest names,
    a value that is missing, and a flag file that cannot be read.
    """
    values: dict[str, list[str]] = {}
    words: list[str] = []
    for name, value in _expanded(argv, flags, program, ()):
        if name is None:
            words.append(value)
            continue
        canonical = _canonical(flags[name])
        values[canonical] = [*values.get(canonical, ()), value] if flags[name].multiple else [value]
    return values, words


def spell(values: Mapping[str, list[str]], words: Sequence[str], flags: Table) -> list[str]:
    """What parse found, in the one form that click reads without doubt: --name=value …, --, words."""
    spelled = [_spell(flags[_plain(name)], value) for name, given in values.items() for value in given]
    return [*filter(None, spelled), "--", *words]


def split_command(argv: Sequence[str], names: Iterable[str], flags: Table) -> tuple[str | None, list[str]]:
    """The word that stands where the command belongs, known or not, and argv without it; None when there
    is no such word. Flags of the command, which are unknown before it is known, may stand before it."""
    known = set(names)
    after_unknown = False
    i = 0
    while i < len(argv) and argv[i] != "--":
        name, value = _flag(argv[i])
        if name is None:
            if argv[i] in known or not after_unknown:
                return argv[i], [*argv[:i], *argv[i + 1 :]]
            after_unknown = False
        else:
            found, _ = _find(name, flags)
            after_unknown = found is None and value is None
            if found is not None and value is None and not _boolean(flags[found]):
                i += 1
        i += 1
    return None, list(argv)


def _flag(word: str) -> tuple[str | None, str | None]:
    """(name, value after = or None) of a word that is a flag; (None, None) of any other."""
    if len(word) < 2 or word[0] != "-" or word == "--":
        return None, None
    name, equals, value = word[1 + (word[1] == "-") :].partition("=")
    return _plain(name), value if equals else None


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _canonical(option: click.Option) -> str:
    return _plain(max(option.opts, key=len))


def _boolean(option: click.Option) -> bool:
    return option.is_flag or isinstance(option.type, click.types.BoolParamType)


def _find(name: str, flags: Table) -> tuple[str | None, bool]:
    """(the flag's name, whether it is said as noNAME)."""
    if name in flags:
        return name, False
    positive = name[2:].lstrip("_")
    if name.startswith("no") and positive in flags and _boolean(flags[positive]):
        return positive, True
    return None, False


def _spell(option: click.Option, value: str) -> str:
    """One flag as click reads it; a click switch that is off is left out, or named by its opposite."""
    declared = max(option.opts, key=len)
    if not option.is_flag:
        return f"{declared}={value}"
    if value == "true":
        return declared
    return option.secondary_opts[0] if option.secondary_opts else ""


def _expanded(argv: Sequence[str], flags: Table, program: str, files: tuple[str, ...]) -> Items:
    """argv's items, flag files opened where they stand."""
    rest = iter(argv)
    for word in rest:
        if word == "--":
            yield from ((None, w) for w in rest)
            return
        name, value = _flag(word)
        if name is None:
            yield None, word
        elif name == "flagfile":
            value = next(rest, None) if value is None else value
            if value is None:
                raise click.UsageError("flag '-flagfile' is missing its argument")
            for path in filter(None, value.split(",")):
                yield from _from_file(path, flags, program, files)
        else:
            found, negated = _find(name, flags)
            if found is None:
                raise click.UsageError(f"unknown command line flag '{name}'{closest(name, flags)}")
            option = flags[found]
            if _boolean(option):
                yield found, _truth(found, "false" if negated else "true" if value is None else value)
                continue
            value = next(rest, None) if value is None else value
            if value is None:
                raise click.UsageError(f"flag '-{found}' is missing its argument ({option.help})")
            yield found, value


def _truth(name: str, value: str) -> str:
    if value.lower() in _TRUE:
        return "true"
    if value.lower() in _FALSE:
        return "false"
    raise click.UsageError(f"illegal value '{value}' specified for bool flag '{name}'; say true or false")


def _from_file(path: str, flags: Table, program: str, files: tuple[str, ...]) -> Items:
    """The flags in a file. A line without a dash names programs (with * and ?): the flags below it are
    for them alone."""
    if path in files:
        raise click.UsageError(f"-flagfile: {' reads '.join([*files, path])}: a circle")
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise click.UsageError(f"-flagfile: cannot read {path}: {reason}") from None
    meant = True
    for line in (raw.strip() for raw in text.splitlines()):
        if not line or line.startswith("#"):
            continue
        if not line.startswith("-"):
            meant = any(fnmatch.fnmatchcase(program, pattern) for pattern in line.split())
        elif meant:
            head, _, value = line.partition(" ")
            argv = [head, value.strip()] if value.strip() and "=" not in head else [line]
            yield from _expanded(argv, flags, program, (*files, path))
