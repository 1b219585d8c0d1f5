"""thunder/tests/test_randomness.py."""

from thunder.tests.test_randomness import *  # noqa: F403
