"""The fusion language: dtypes, the op table, nodes, and the ways in and out of text.

`builder` makes a `Fusion`, `printer` and `parser` turn it into text and back, `verify` says what must hold,
`interpreter` runs it with torch. Everything else in the engine reads fusions and never changes one in place.
"""
