"""thunder/tests/test_update_aliases.py."""

from thunder.tests.test_update_aliases import *  # noqa: F403
