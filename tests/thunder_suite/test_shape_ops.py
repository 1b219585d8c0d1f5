"""thunder/tests/test_shape_ops.py."""

from thunder.tests.test_shape_ops import *  # noqa: F403
