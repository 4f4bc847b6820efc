"""Loaded first by workers of a cluster that Stoker started on this machine."""

import signal
import threading

from stoker.store.dask._cluster import silence

silence()
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group: the client acts
