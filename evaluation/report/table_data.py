"""The data classes of tables, under their former address."""

from evenhand.evaluation.report.page import Cell, Mark, Row, Table

__all__ = ["Cell", "Mark", "Row", "Table"]
