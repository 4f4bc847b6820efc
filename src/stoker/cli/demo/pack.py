"""Prepare every recording once, and pack what comes of it. A second run packs only what is new or changed."""

import sys

import numpy as np
import scipy.signal

import stoker
from stoker.store.sources import FolderSource

RATE, LENGTH = 2000, 4000  # Hz; samples of a signal


def prepare(sample):
    signal = scipy.signal.resample_poly(sample["x"][0], RATE, int(sample["rate"]))
    band = scipy.signal.butter(4, [25, 400], "bandpass", fs=RATE, output="sos")
    signal = scipy.signal.sosfiltfilt(band, signal)
    signal = (signal - signal.mean()) / signal.std()
    return {"x": np.resize(signal, (1, LENGTH)).astype(np.float32), "y": sample["y"]}


if __name__ == "__main__":
    recordings, target = sys.argv[1:]
    print(stoker.pack(FolderSource(recordings, labels="folder"), target, transform=prepare))
