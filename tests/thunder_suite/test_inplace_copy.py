"""thunder/tests/test_inplace_copy.py."""

from thunder.tests.test_inplace_copy import *  # noqa: F403
