"""The front end for people: `FusionDefinition` with nvFuser's spelling, onto the IR.

`definition` records, `specialize` turns records into a fusion for the sizes of a call, `rows` (filled by `pointwise`,
`views` and `copies`) is the table of ops, `translation` prints a definition as Python.
"""
