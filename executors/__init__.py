"""Thunder's side of the plug-in. Importing it registers the executor under the name "thunder_fuser".

Public: `executor`, `jit`.
"""

from thunder_fuser.executors.executor import ThunderFuserExecutor, executor
from thunder_fuser.executors.jit import jit

__all__ = ["ThunderFuserExecutor", "executor", "jit"]
