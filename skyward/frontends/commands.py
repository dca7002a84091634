"""Commands of front ends: their values, parsing, help and completion, and the decoding of messages."""

from skyward.commands.command import (
    POOL_OPTION,
    Command,
    Outcome,
    handler_of,
)
from skyward.commands.messages import Json, json_type, read_arguments, sent_forms
from skyward.commands.option import Option, explain
from skyward.commands.parsing import parse_options, unknown_option
from skyward.commands.reading import PLACES, duration, lifetime, number, place, size
from skyward.commands.table.every_command import DECLARED
from skyward.commands.table.pool_options import POOL_LABELS, POOL_OPTIONS, read_pool_options
from skyward.commands.table.run_options import FETCH, FILE, FILE_LIMIT, ON, SYNC, TIMEOUT
from skyward.commands.underline import OptionError, split_line, underlined
from skyward.commands.words import Values, complete_command, complete_options, help_of_command, help_text, parse
from skyward.wire.protocol.decoding import Malformed, Reader, reader_of, record, wrong

__all__ = [
    "DECLARED",
    "FETCH",
    "FILE",
    "FILE_LIMIT",
    "ON",
    "PLACES",
    "POOL_LABELS",
    "POOL_OPTION",
    "POOL_OPTIONS",
    "SYNC",
    "TIMEOUT",
    "Command",
    "Json",
    "Malformed",
    "Option",
    "OptionError",
    "Outcome",
    "Reader",
    "Values",
    "complete_command",
    "complete_options",
    "duration",
    "explain",
    "handler_of",
    "help_of_command",
    "help_text",
    "json_type",
    "lifetime",
    "number",
    "parse",
    "parse_options",
    "place",
    "read_arguments",
    "read_pool_options",
    "reader_of",
    "record",
    "sent_forms",
    "size",
    "split_line",
    "underlined",
    "unknown_option",
    "wrong",
]
