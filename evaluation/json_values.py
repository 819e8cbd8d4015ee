"""The types of values that are read from JSON, or written as JSON, such as signatures, identities and fingerprints.

Any list is a `Sequence` and any dictionary a `Mapping`, so that `dict[str, str]` is a `JsonObject`, too. `isinstance`
with `list` or `dict` narrows a value that was read.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = Mapping[str, "Json"]
