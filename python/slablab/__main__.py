"""`python -m slablab`: the shell command."""

from slablab.cli import shell

shell()
