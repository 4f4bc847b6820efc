"""Sound files: ``.wav`` and ``.flac`` through soundfile (libsndfile)."""

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from stoker.errors import SourceError, UsageError
from stoker.store.sources._reader import Reader, Sample

# libsndfile reads a cut-off wav file without complaint and only logs what it found.
CUT_OFF = re.compile(r"^data : (\d+) \(should be (\d+)\)", re.MULTILINE)
# A program that writes to a pipe cannot know the length and promises about all that fits.
LEAST_STREAMED_BYTES = 0x7FFF_0000
FITS_INT16 = ("PCM_16", "PCM_S8", "PCM_U8")


@dataclass(frozen=True, kw_only=True)
class AudioReader(Reader):
    """``x``: [C, T], float32 in -1..1 or the stored int16; ``rate``: int64, in Hz."""

    kind: ClassVar[str] = "audio"
    suffixes: ClassVar[tuple[str, ...]] = (".wav", ".flac")
    gives: ClassVar[tuple[str, ...]] = ("x", "rate")
    channel_axis: ClassVar[dict[str, int | None]] = {"x": 0}
    library: ClassVar[str] = "soundfile"
    extra: ClassVar[str] = "audio"

    dtype: Literal["float32", "int16"] = "float32"

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "int16"):
            raise UsageError(f"dtype of audio must be 'float32' or 'int16', got {self.dtype!r}")

    def read(self, path: str) -> Sample:
        """The whole recording; one that is shorter than its header promises is refused."""
        import soundfile

        with soundfile.SoundFile(path) as file:
            if self.dtype == "int16" and file.subtype not in FITS_INT16:
                raise SourceError(
                    f"dtype='int16' cannot hold sound stored as {file.subtype}; use dtype='float32'"
                )
            frames = file.read(dtype=self.dtype, always_2d=True)
            rate, log = file.samplerate, file.extra_info
        if cut := CUT_OFF.search(log):
            promised, present = int(cut[1]), int(cut[2])
            if present < promised < LEAST_STREAMED_BYTES:
                raise SourceError(
                    f"the recording is cut off: {present} of {promised} bytes of sound are there"
                )
        return {"x": np.ascontiguousarray(frames.T), "rate": np.int64(rate)}
