"""GGUF models in several files, NAME-00001-of-00003.gguf, …, as llama.cpp's `gguf-split` writes them."""

import atexit
import re
import shutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

from evenhand.evaluation.files import file_version

PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)", re.IGNORECASE)
SPLIT = "split."  # starts the names of the fields that say how a model is split


def part_names(name: str) -> list[str]:
    """Return the names of all parts of a GGUF model, given the name of one part; [name] of a model in one file.

    >>> part_names("org/repo/m-00001-of-00002.gguf")
    ['org/repo/m-00001-of-00002.gguf', 'org/repo/m-00002-of-00002.gguf']
    """
    found = PART.fullmatch(name)
    if found is None:
        return [name]
    count = int(found["count"])
    return [f"{found['stem']}-{number:05d}-of-{count:05d}{found['suffix']}" for number in range(1, count + 1)]


def join_parts(paths: Sequence[Path]) -> Path:
    """Return a temporary file with the fields of the first part and the tensors of all, for the life of the process.

    Transformers reads a model in one file only.
    """
    return _join(tuple(paths), tuple(map(file_version, paths)))


@lru_cache(maxsize=4)
def _join(paths: tuple[Path, ...], versions: tuple[tuple[int, ...], ...]) -> Path:
    from gguf import GGUFReader, GGUFValueType, GGUFWriter, Keys

    folder = Path(mkdtemp(prefix="evenhand_gguf_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    readers = [GGUFReader(path) for path in paths]
    fields = readers[0].fields
    joined = folder / "joined.gguf"
    writer = GGUFWriter(joined, fields[Keys.General.ARCHITECTURE].contents())
    for field in fields.values():
        if field.name == Keys.General.ARCHITECTURE or field.name.startswith(("GGUF.", SPLIT)):
            continue
        kind = field.types[0]
        item_type = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=item_type)
    tensors = [tensor for reader in readers for tensor in reader.tensors]
    for tensor in tensors:
        data = tensor.data
        writer.add_tensor_info(tensor.name, data.shape, data.dtype, data.nbytes, tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in tensors:
        writer.write_tensor_data(tensor.data, tensor_endianess=readers[0].endianess)
    writer.close()
    return joined
