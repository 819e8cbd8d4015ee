"""Reports on the terminal and as one self-contained HTML file.

A family of metrics builds a `Page` of sentences, tables and figures (`page.py`); each format has a module that renders
the page.
"""
