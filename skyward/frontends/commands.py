"""Commands of front ends: their values, parsing, help and completion, and the decoding of messages."""

from skyward.commands import reading
from skyward.commands.command import (
    CELL,
    CLOUD,
    COMMAND,
    KEPT,
    NODE,
    NODES,
    ORPHAN,
    POOL,
    POOL_OPTION,
    Argument,
    Command,
    Form,
    Outcome,
    command,
)
from skyward.commands.messages import Json, json_type, read_arguments, read_option_texts, sent_forms
from skyward.commands.option import Option, explain
from skyward.commands.parsing import parse_options, unknown_option
from skyward.commands.reading import count, duration, lifetime, number, parts, size
from skyward.commands.underline import OptionError, split_line, underlined
from skyward.commands.words import Values, complete_command, complete_options, help_of_command, help_text, parse
from skyward.wire.protocol.decoding import Malformed, Reader, reader_of, record, wrong

__all__ = [
    "CELL",
    "CLOUD",
    "COMMAND",
    "KEPT",
    "NODE",
    "NODES",
    "ORPHAN",
    "POOL",
    "POOL_OPTION",
    "Argument",
    "Command",
    "Form",
    "Json",
    "Malformed",
    "Option",
    "OptionError",
    "Outcome",
    "Reader",
    "Values",
    "command",
    "complete_command",
    "complete_options",
    "count",
    "duration",
    "explain",
    "help_of_command",
    "help_text",
    "json_type",
    "lifetime",
    "number",
    "parse",
    "parse_options",
    "parts",
    "read_arguments",
    "read_option_texts",
    "reader_of",
    "reading",
    "record",
    "sent_forms",
    "size",
    "split_line",
    "underlined",
    "unknown_option",
    "wrong",
]
