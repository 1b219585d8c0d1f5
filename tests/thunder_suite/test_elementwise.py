"""thunder/tests/test_elementwise.py."""

from thunder.tests.test_elementwise import *  # noqa: F403
