r"""What a name from outside may look like: one line of visible characters, of bounded length.

Names come from files, devices and people: an operator may be called `\x1b[2J` (clears a terminal)
or hold a right-to-left override (shows `exe.txt` for `txt.exe`). They are cleaned once, where they
enter, so that every view shows the same. Each unfit character becomes a visible escape, for
leaving it out would make two names one. What means something to one medium alone, such as `<` to
HTML, is that medium's to escape, when it writes.

Fit are all characters that have a look of their own. Unfit are

- control characters, format characters (bidirectional marks, joiners, tags), line and paragraph
  separators, and every space but U+0020;
- characters without a look: fillers, variation selectors, the braille blank;
- private characters, whose look is the font's, surrogates, which no file can hold, and
  noncharacters;
- combining marks at the start, where they would sit on what stands before, and any beyond four on
  one letter: more of them run over the lines above and below.

Unassigned characters stay: which ones those are changes with every version of Unicode, and a name
must be the same on all machines.
"""

from __future__ import annotations

import codecs
import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final

LONGEST_NAME: Final = 1000
"""Characters of one shown name; kernel names of fused operators have some hundreds."""
_LONGEST_LINE: Final = 10_000
"""Of a message, which quotes several names and paths."""
RAW_NAMES: Final = "raw_names"
"""Key in JSON documents: {name as shown: bytes as they came}, where the two differ."""

_UNFIT_FROM_DEL = (
    r"\x7f-\xa0\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160"
    r"\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164"
    r"\ud800-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U0001fffe\U0001ffff\U0002fffe\U0002ffff\U0003fffe-\U000dffff\U000e0000-\U000e0fff"
    r"\U000efffe-\U0010ffff"
)
_UNFIT = re.compile(rf"[\x00-\x1f{_UNFIT_FROM_DEL}]")
_UNFIT_IN_JSON = re.compile(f"[{_UNFIT_FROM_DEL}]")
"""JSON has escapes of its own for the rest."""
_FROM_DEL = re.compile(r"[\x7f-\U0010ffff]+")
"""Searched first: one range is sought three times faster than fifty, and samples are megabytes."""
_BRIEF: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_LAST_ASCII, _LAST_BASIC = 0x7F, 0xFFFF
_FIRST_BYTE, _LAST_BYTE = 0xDC80, 0xDCFF
"""What Python decodes a byte to that is no UTF-8 (`surrogateescape`), 0x80 to 0xFF."""
_MOST_MARKS: Final = 4
"""On one letter: Vietnamese has two, pointed Hebrew three, transcriptions of speech four."""
_IN_ASCII: Final = {
    "×": "x", "µ": "u", "−": "-", "–": "-", "—": "-", "÷": "/", "…": "~", "·": "|", "→": ">",
    "≤": "<=", "≥": ">=", "±": "+-", "²": "2", "█": "#", "▓": "=", "▒": "-", "░": ".", "≈": "~",
}  # fmt: skip
"""How etprof's own signs look where only ASCII can be shown; `…` stands in ranges and for what is
left out of a name."""
ASCII_ERRORS: Final = "etprof_ascii"
"""Name of the codecs' error handler that writes signs so, and escapes of what else is no ASCII."""
_DIGEST: Final = 16


class ChangedName(str):
    """A cleaned name that knows what it was; a `str` in every other respect."""

    __slots__ = ("raw",)

    raw: str
    r"""The bytes as they came, in ASCII: `\xNN` for all that is not printable, `\\` for `\`."""


def what_differs(first: str, second: str) -> tuple[str, str]:
    """Shortens two names to the words in which they differ, joined by underscores as they are.

    >>> what_differs("linux_auto_toy_cnn_fp16", "linux_auto_toy_cnn_int8")
    ('fp16', 'int8')
    """
    words = first.split("_"), second.split("_")
    blocks = SequenceMatcher(None, *words, autojunk=False).get_matching_blocks()
    before, after = (
        "_".join(
            word
            for place, word in enumerate(words[side])
            if not any(block[side] <= place < block[side] + block.size for block in blocks)
        )
        for side in (0, 1)
    )
    if before and after:
        return before, after
    # One has all words of the other: it is named from the last that they begin with on.
    begin = max(blocks[0].size - 1, 0) if blocks[0][:2] == (0, 0) else 0
    return "_".join(words[0][begin:]), "_".join(words[1][begin:])


def as_ascii(text: str) -> str:
    """Returns how a text looks where only ASCII can be shown."""
    return text if text.isascii() else text.encode("ascii", ASCII_ERRORS).decode("ascii")


def _sign_in_ascii(error: UnicodeError) -> tuple[str, int]:
    """Writes a sign in ASCII, and of anything else an escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    replacements = (
        _IN_ASCII.get(sign) or sign.encode("ascii", "backslashreplace").decode() for sign in signs
    )
    return "".join(replacements), error.end


codecs.register_error(ASCII_ERRORS, _sign_in_ascii)


def clean(raw: str, longest: int = LONGEST_NAME) -> str:
    r"""Returns `raw` fit to be shown; a fit one is returned as it is.

    Unfit characters become `\n`, `\x1b` (ASCII), `\x9b` (a byte that is no UTF-8), `\u009b` or
    `\U000e0041`. A longer name is cut, and ends in an ellipsis and a digest of the whole.
    """
    if raw.isascii() and raw.isprintable() and len(raw) <= longest:
        return raw
    text = _UNFIT.sub(lambda match: _escape(match[0]), raw)
    if not text.isascii():
        text = _bound_marks(text)
    if len(text) > longest:
        digest = _digest(raw)
        text = f"{text[: longest - len(digest) - 1]}…{digest}"
    return raw if text == raw else _changed(text, raw)


def clean_all(raws: Iterable[str]) -> tuple[str, ...]:
    """Cleans names of one kind, so that those that differ still do.

    Where a cleaned name looks like another, `~` and a digest of what it was tell them apart.
    """
    names = tuple(raws)
    cleaned = [clean(name) for name in names]
    pairs = dict(zip(names, cleaned, strict=True))
    if len(pairs) == len(set(pairs.values())):
        return tuple(cleaned)
    alike = Counter(pairs.values())
    used = set(pairs.values())
    for raw, text in pairs.items():
        if text != raw and alike[text] > 1:
            pairs[raw] = _disambiguate(text, raw, used)
            used.add(pairs[raw])
    return tuple(pairs[name] for name in names)


def clean_data(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Cleans every text in JSON data, keys included; keys that differ still do."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        keys = clean_all(map(str, value))
        return {key: clean_data(item) for key, item in zip(keys, value.values(), strict=True)}
    return [clean_data(item) for item in value] if isinstance(value, list | tuple) else value


def clean_lines(text: str) -> str:
    """Cleans a message that may have several lines of our own; only the first is not indented.

    So a name with a line end in it cannot write a line that looks like another message.
    """
    first, *further_lines = (clean(line, _LONGEST_LINE) for line in text.split("\n"))
    return "\n".join([first, *(f"  {line.removeprefix('  ')}" for line in further_lines)])


def raw_names(*values: Any) -> dict[str, str]:  # noqa: ANN401 - any JSON value
    """Returns {name as shown: bytes as they came} of all changed names in JSON data."""
    raw_by_name: dict[str, str] = {}
    for value in values:
        if isinstance(value, ChangedName):
            raw_by_name[str(value)] = value.raw
        elif isinstance(value, dict):
            raw_by_name |= raw_names(*value, *value.values())
        elif isinstance(value, list | tuple):
            raw_by_name |= raw_names(*value)
    return raw_by_name


def with_raw_names(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a JSON object with the bytes of all changed names in it under `RAW_NAMES`, if any."""
    raw_by_name = raw_names(dict(document))
    return {**document, RAW_NAMES: raw_by_name} if raw_by_name else dict(document)


def escape_unfit_json(text: str) -> str:
    r"""Writes unfit characters in JSON text as `\uNNNN`, which means the same.

    Texts that are no names, such as a prompt, are kept as they are; a file that holds them is
    still safe to look at.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return _FROM_DEL.sub(
        lambda span: _UNFIT_IN_JSON.sub(lambda match: _escape_json(match[0]), span[0]), text
    )


def _changed(text: str, raw: str) -> ChangedName:
    name = ChangedName(text)
    name.raw = raw.raw if isinstance(raw, ChangedName) else _describe_bytes(raw)
    return name


def _escape(character: str) -> str:
    code = ord(character)
    if character in _BRIEF:
        return _BRIEF[character]
    if code <= _LAST_ASCII:
        return f"\\x{code:02x}"
    if _FIRST_BYTE <= code <= _LAST_BYTE:
        return f"\\x{code & 0xFF:02x}"
    return f"\\u{code:04x}" if code <= _LAST_BASIC else f"\\U{code:08x}"


def _escape_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def _bound_marks(text: str) -> str:
    """Escapes combining marks at the start, and those beyond some on one letter."""
    pieces: list[str] = []
    marks = _MOST_MARKS
    for character in text:
        if not unicodedata.category(character).startswith("M"):
            marks = 0
        elif marks < _MOST_MARKS:
            marks += 1
        else:
            pieces.append(_escape(character))
            continue
        pieces.append(character)
    return "".join(pieces)


def _disambiguate(text: str, raw: str, used: set[str]) -> ChangedName:
    digest = _digest(raw)
    while True:
        candidate = f"{text[: LONGEST_NAME - len(digest) - 1]}~{digest}"
        if candidate not in used:
            return _changed(candidate, raw)
        digest = _digest(digest)


def _digest(raw: str) -> str:
    import hashlib

    return hashlib.sha256(_bytes_of(raw)).hexdigest()[:_DIGEST]


def _bytes_of(raw: str) -> bytes:
    """The bytes that a text was decoded from; a surrogate that stands for none is encoded."""
    try:
        return raw.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return raw.encode("utf-8", "surrogatepass")


def _describe_bytes(raw: str) -> str:
    printable = range(0x20, 0x7F)
    return "".join(
        "\\\\" if byte == ord("\\") else chr(byte) if byte in printable else f"\\x{byte:02x}"
        for byte in _bytes_of(raw)
    )


def join_names(names: Iterable[str]) -> str:
    """Returns names or clauses as a sentence has them; empty for none.

    >>> join_names(["a", "b", "c"])
    'a, b and c'
    """
    *first_names, last = [*names] or [""]
    return f"{', '.join(first_names)} and {last}" if first_names else last


def command_line(*arguments: object) -> str:
    """Returns a command of etprof's as people paste it: each word quoted, a path never a flag."""
    # Paths that begin with a dash are those of the current folder, which have another spelling.
    spelled = (
        as_operand(str(argument)) if isinstance(argument, Path) else str(argument)
        for argument in arguments
    )
    return shlex.join(["etprof", *spelled])


QUOTED_COMMAND: Final = re.compile(r"""`(etprof (?:[^`'"]|'[^']*'|"[^"]*")+)`""")
"""A command in a sentence; its words may be quoted, and have backticks then."""
_SYNONYMS: Final = {
    **dict.fromkeys(("phone", "adb", "device", "pixel"), "android"),
    **dict.fromkeys(("host", "this", "pc", "x86"), "local"),
    **dict.fromkeys(("macos", "darwin", "osx"), "mac"),
    **dict.fromkeys(("qemu", "emulated"), "emulator"),
    **dict.fromkeys(("float16", "half", "f16"), "fp16"),
    **dict.fromkeys(("float32", "float", "f32"), "fp32"),
    "bfloat16": "bf16",
    "w8a8": "int8",
}
"""What people call the same thing."""


def kept_flags(arguments: Sequence[str], flags: Mapping[str, int]) -> tuple[str, ...]:
    """Returns those of `flags`, with their values, that a command was given, in its order.

    >>> kept_flags(["profile", "toy_cnn", "--threads=1", "--full"], {"--threads": 1})
    ('--threads', '1')
    """
    kept_words: list[str] = []
    for position, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag not in flags:
            continue
        if flags[flag] == 0:
            kept_words.append(flag)
        elif equals or position + 1 < len(arguments):
            kept_words += [flag, value if equals else arguments[position + 1]]
    return tuple(kept_words)


def without_flags(arguments: Sequence[str], flags: Mapping[str, int]) -> tuple[str, ...]:
    """Returns the arguments of a command without those of `flags` and their values.

    >>> without_flags(["profile", "toy_cnn", "--threads=1", "--full"], {"--threads": 1})
    ('profile', 'toy_cnn', '--full')
    """
    remaining: list[str] = []
    values_to_drop = 0
    for argument in arguments:
        flag, equals, _ = argument.partition("=")
        if values_to_drop:
            values_to_drop -= 1
        elif flag in flags:
            values_to_drop = 0 if equals else flags[flag]
        else:
            remaining.append(argument)
    return tuple(remaining)


def as_operand(argument: str) -> str:
    """Returns a file, or a model in one, so that no command takes it for a flag."""
    return f"./{argument}" if argument.startswith("-") else argument


def layer_or_label(location: str | None, label: str) -> str:
    """Returns what an operator is called where it is shown: its layer, which people look for.

    Without a known `location` (module and source line) that is its label in the ETDump.
    """
    return location or label


def suggest(name: str, choices: Iterable[str]) -> str:
    """Returns `; did you mean '…'?` when something known is close, else nothing."""
    import difflib

    names = list(choices)
    meant = _SYNONYMS.get(name.lower())
    close = [meant] if meant in names else difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
