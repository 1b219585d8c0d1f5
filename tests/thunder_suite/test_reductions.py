"""thunder/tests/test_reductions.py."""

from thunder.tests.test_reductions import *  # noqa: F403
