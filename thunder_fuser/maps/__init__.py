"""Index maps: how the values of a segment are reached from memory.

`affine` is the arithmetic of indices, `boxes` the pieces of an output's index space, `exprs` what one thread computes,
`pullback` turns an output into exprs over boxes by carrying its index backwards through every meta op, `nests` groups
boxes that read the same memory so that one thread walks them together. No op of the language moves data by itself.
"""
