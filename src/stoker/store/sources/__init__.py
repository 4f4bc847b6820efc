"""Ready-made lazy sources: raw files in, dicts of arrays out.

_open.py            a path, a pattern or an object -> the source that it means
_folder.py          FolderSource and GlobSource: a sample per file
_csv_source.py      CsvSource: a sample per row, which names its file
_hdf5_source.py     Hdf5Source: one file, many samples (_hdf5_layouts, _hdf5_handle, _hdf5_fields)
_source.py          what all of them are: numbered, named, fingerprinted
_file_source.py     what those with a file per sample share
_listing.py         the files that a pattern means
_columns.py         labels and CSV columns, typed
_files.py           where files are: in a folder or at a URL (_here.py: one of them, for long)
_fingerprints.py    128 bits that change when a sample would
_formats.py         suffix -> reader
_reader.py          what a reader is, and how its failures are told
_arrays.py, _audio.py, _images.py, _volumes.py, _hdf5_file.py, _matlab.py    the readers
_nearest.py         what a misspelt name meant
"""

from stoker.store.sources._csv_source import CsvSource
from stoker.store.sources._folder import FolderSource, GlobSource
from stoker.store.sources._hdf5_source import Hdf5Source
from stoker.store.sources._open import open_source

__all__ = ["CsvSource", "FolderSource", "GlobSource", "Hdf5Source", "open_source"]
