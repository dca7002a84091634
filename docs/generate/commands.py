"""The commands of `%sky` and of the terminal, from the tables that run them."""

from docs.generate.markdown import entry, prose
from docs.generate.options import option_entries
from skyward.cli.main import help_of_command
from skyward.commands.table.every_command import OF_COMMAND_LINE
from skyward.commands.words import described_flags
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
        parts.append(option_entries(f"%sky {name}", described_flags(command)))
    return "\n".join(parts)


def terminal_commands() -> str:
    """Return an entry for each command of the terminal, with its `--help` and its options."""
    parts = []
    for name, command in OF_COMMAND_LINE.items():
        parts.append(f"## `skyward {name}`\n")
        text = prose(command.description or command.help)
        shown = help_of_command("skyward", name).rstrip()
        parts.append(entry("command", f"skyward {name}", "", text, "", "```text", shown, "```"))
        parts.append(option_entries(f"skyward {name}", (*command.options, *command.collected)))
    return "\n".join(parts)
