"""thunder/tests/test_nvfuser.py."""

from thunder.tests.test_nvfuser import *  # noqa: F403
