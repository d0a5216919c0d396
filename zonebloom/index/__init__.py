"""An index as users hold it.

`doors` has the functions that build, open, import and delete an index; `index` has `Index`, its answers and its upkeep;
`report/` shows an index as one HTML page.
"""
