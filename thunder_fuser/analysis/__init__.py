"""Facts about a fusion under given input strides, and no change to it.

`layout` says where eager torch would put each value, `alias` which buffers must be written and what is only a view,
`traffic` how many bytes that takes at least. `strides` holds torch's stride rules.
"""
