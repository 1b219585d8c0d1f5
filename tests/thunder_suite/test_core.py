"""thunder/tests/test_core.py."""

from thunder.tests.test_core import *  # noqa: F403
