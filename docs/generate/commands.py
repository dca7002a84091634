"""The commands of `%sky` and of the terminal, from the tables that run them."""

from docs.generate.markdown import entry, prose
from docs.generate.options import option_entries
from skyward.cli.main import _help as help_of_command
from skyward.commands.table.every_command import OF_COMMAND_LINE
from skyward_kernel.commands.registry import COMMANDS

__all__ = ["magic_commands", "terminal_commands"]


def magic_commands() -> str:
    """Return an entry for each command of `%sky`, with its options."""
    parts = []
    for name, command in COMMANDS.items():
        parts.append(f"## `%sky {name}`\n")
        text = prose(command.help)
        if command.example:
            text += f" Example: `%sky {name} {command.example}`."
        parts.append(entry("magic", f"%sky {name}", command.usage, text))
        parts.append(option_entries(f"%sky {name}", command.flags))
    return "\n".join(parts)


def terminal_commands() -> str:
    """Return an entry for each command of the terminal, with its `--help` and its options."""
    parts = []
    for name, command in OF_COMMAND_LINE.items():
        parts.append(f"## `sky {name}`\n")
        text = prose(command.description or command.help)
        parts.append(
            entry("command", f"sky {name}", "", text, "", "```text", help_of_command("sky", name).rstrip(), "```")
        )
        parts.append(option_entries(f"sky {name}", command.flags))
    return "\n".join(parts)
