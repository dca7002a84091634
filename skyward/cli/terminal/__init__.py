"""Parts that all commands share: answers, help, completion, interrupts, and the names of the program."""
