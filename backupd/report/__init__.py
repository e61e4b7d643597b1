"""How measurements look: text tables, terminal plots, CSV, JSON documents, and one HTML page with its pictures.

Knows: formats, labels, axes. Refuses to know where values come from and where the text goes: pure functions, no I/O.
"""
