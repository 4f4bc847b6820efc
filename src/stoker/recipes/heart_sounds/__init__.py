"""Heart sounds: synthetic recordings in class folders."""

from stoker.recipes.heart_sounds._synthetic import CLASSES, synthesize, write_recordings

__all__ = ["CLASSES", "synthesize", "write_recordings"]
