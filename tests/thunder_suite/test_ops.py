"""thunder/tests/test_ops.py."""

from thunder.tests.test_ops import *  # noqa: F403
