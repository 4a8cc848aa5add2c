"""`python -m slablab`: the shell command."""

import sys

from slablab.cli import main

sys.exit(main())
