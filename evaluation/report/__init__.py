"""Reports: on the terminal, as Markdown and as one HTML file that needs no network.

A family of metrics builds a `Page` of sentences, tables and figures (`page.py`); each form renders it.
"""
