"""`python -m thunder_fuser`: the command line."""

import sys

from thunder_fuser.cli.main import main

sys.exit(main())
