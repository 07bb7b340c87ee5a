"""The command line: one file a subcommand; results on stdout, progress and logs on stderr."""
