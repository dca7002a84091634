"""What all commands of the command line share: answers, help, completion, and the names of the program."""
