"""How long qkv_split_rope takes, forward and backward, in eager torch, torch.compile and thunder_fuser.

usage: python benchmarks/rope.py [OUT.json] [--executors eager,compile,thunder_fuser]

GPU times by CUDA events, the L2 cache flushed before each call, the host kept ahead, medians. `x copy` is the time over that
of a device copy of the program's least bytes (each tensor needed read once, each result written once, views free), the two
measured in turn in the same run: 1.00 is the practical limit. Error is the relative L2 distance to the same program in float64.
"""

from __future__ import annotations

import argparse
import json

import thunder
import torch

import thunder_fuser
from thunder_fuser.cli.rope import HEADS, program
from thunder_fuser.cli.timing import measure

MAKE = {
    "eager": lambda f: f,
    "compile": torch.compile,
    "thunder_fuser": lambda f: thunder.jit(f, executors=[thunder_fuser.executor]),
}


def least_bytes(shape):
    """(forward, backward), in bytes of bf16: v is a view unless grouped queries expand it."""
    rows = shape.batch * shape.tokens * shape.size * 2
    q, kv, tables = rows * shape.heads, rows * shape.groups, 2 * shape.tokens * shape.rotary * 2
    expanded = shape.groups not in (1, shape.heads)
    k_out = q if expanded else kv
    forward = q + kv + q + k_out + tables + (kv + k_out if expanded else 0)
    return forward, q + 2 * k_out + tables + q + 2 * kv


def row(shape, name):
    torch._dynamo.reset()
    function, inputs = program(shape), shape.inputs(torch.device("cuda"))
    made = MAKE[name](function)
    outputs = made(*inputs)
    exact = function(*(t.detach().double() for t in inputs))
    error = max(((o.double() - e).norm() / e.norm()).item() for o, e in zip(outputs, exact))
    del exact
    gradients = [torch.randn_like(o) for o in outputs]
    forward_bytes, backward_bytes = least_bytes(shape)
    with torch.no_grad():
        forward = measure(lambda: made(*inputs), forward_bytes)
    outputs = made(*inputs)
    backward = measure(lambda: torch.autograd.grad(outputs, inputs[0], gradients, retain_graph=True), backward_bytes)
    return {"model": shape.model, "executor": name, "error": error,
            **{f"{way}_{k}": v for way, t in (("forward", forward), ("backward", backward))
               for k, v in (("us", t.microseconds), ("x_copy", 1 / t.share))}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", nargs="?", help="where to write the figures as JSON")
    parser.add_argument("--executors", default=",".join(MAKE))
    arguments = parser.parse_args()
    rows = []
    print(f"{'model':12} {'executor':14} {'forward':>10} {'x copy':>7} {'backward':>10} {'x copy':>7}  error")
    for shape in HEADS.values():
        for name in arguments.executors.split(","):
            r = row(shape, name)
            rows.append(r)
            print(f"{r['model']:12} {name:14} {r['forward_us']:8.1f}us {r['forward_x_copy']:7.2f} "
                  f"{r['backward_us']:8.1f}us {r['backward_x_copy']:7.2f}  {r['error']:.2e}", flush=True)
            torch.cuda.empty_cache()
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
