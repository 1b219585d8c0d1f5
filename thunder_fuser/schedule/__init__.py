"""Decisions: from loop nests to kernels. `segment` cuts a fusion into kernels, `pointwise` orders, vectorises and tiles
nests, `reduction` spreads large reductions over a block; `plan` holds what codegen may know. Nothing here prints code."""
