"""thunder/tests/test_autocast.py."""

from thunder.tests.test_autocast import *  # noqa: F403
