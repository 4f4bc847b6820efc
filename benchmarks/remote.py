"""How fast are batches out of an object store, beside LitData and MosaicML Streaming?

    python benchmarks/remote.py [--quick]

An S3 server (moto) runs on this machine, behind proxies that hold each request back for 1, 20 or 100 ms.
Every loader has its shards of 8 MB in it and reads them through a cache on the disk: the first epoch begins
with an empty one, the second with all in it. Both open everything anew. Epochs of all loaders alternate.
Starvation is the share of time that an accelerator with steps of 20 ms waits in the first epoch, from its
second step on.

Needs the development environment (s3fs, moto), and the peers' environments of ``loading.py --install``.
"""

import argparse
import contextlib
import functools
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from measuring import Report, interleave, say
from peers import workloads
from peers.driving import BENCHMARKS, Peers, System
from peers.remote_epochs import BUCKET, FIRST, SECOND
from peers.workloads import Workload

SHUFFLES = ("full shuffle", "quasi-random")
STOKER = System(
    "Stoker", "remote_stoker", tuple(f"{how}, {when}" for how in SHUFFLES for when in (FIRST, SECOND))
)
LITDATA = System("LitData", "remote_litdata", (FIRST, SECOND), "litdata")
STREAMING = System("MosaicML Streaming", "remote_streaming", (FIRST, SECOND), "streaming")
SYSTEMS = (STOKER, LITDATA, STREAMING)
STEP_MS = 20
_START_S = 60


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little data; nothing is written")
    quick = parser.parse_args().quick
    report = Report("remote", ("torch", "fsspec", "s3fs", "moto"))
    workload = workloads.signals(1_920 if quick else 8_000)
    with tempfile.TemporaryDirectory() as name, _server() as near:
        folder = workload.write(Path(name) / "signals").folder
        os.environ.update(
            NEAR_ENDPOINT_URL=f"http://127.0.0.1:{near}",
            AWS_ACCESS_KEY_ID="bench",
            AWS_SECRET_ACCESS_KEY="bench",  # noqa: S106 - of a server that asks for none
            AWS_DEFAULT_REGION="us-east-1",
        )
        for delay_ms in (20,) if quick else (1, 20, 100):
            with _far(near, delay_ms) as port:
                os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
                title = f"{len(workload):,} {workload.title}, {delay_ms} ms away"
                say(title)
                _measure(report, title, folder, repetitions=1 if quick else 3)
    if quick:
        for row in report.rows:
            print(f"{row.workload}: {row.system}: {row.value:.4g} {row.unit}")
    else:
        report.write()


def _measure(report: Report, title: str, folder: Path, *, repetitions: int) -> None:
    peers = Peers(reuse=False)
    try:
        peers.prepare(SYSTEMS, folder)
        num_steps = min(100, len(Workload.open(folder)) // Workload.open(folder).batch_size - 2)
        runs = {
            f"{system.name}, {variant}": functools.partial(peers.ask, system, variant, {})
            for system in SYSTEMS
            for variant in system.variants
        }
        waits = {
            name.replace(FIRST, "starved in the first epoch"): functools.partial(
                peers.ask, system, variant, {"step_ms": STEP_MS, "num_steps": num_steps}
            )
            for system in SYSTEMS
            for variant in system.variants
            if FIRST in variant
            for name in [f"{system.name}, {variant}"]
        }
        speeds, starved = interleave(runs, repetitions), interleave(waits, repetitions)
        for system in SYSTEMS:
            if system in peers.missing:
                report.add_missing(title, system.name)
            elif system.environment is not None:
                report.versions_elsewhere[system.name] = peers.version(system)
    finally:
        peers.close()
    for values, unit in ((speeds, "samples/s"), (starved, "share of time")):
        for name, each in values.items():
            if not any(map(math.isnan, each)):
                report.add(title, name, each, unit)
    for how in SHUFFLES:
        for peer in (LITDATA, STREAMING):
            for when in (FIRST, SECOND):
                ours, theirs = speeds[f"{STOKER.name}, {how}, {when}"], speeds[f"{peer.name}, {when}"]
                ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
                if not any(map(math.isnan, ratios)):
                    report.add(title, f"{STOKER.name}, {how} / {peer.name}, {when}", ratios, "ratio")


@contextlib.contextmanager
def _server() -> Iterator[int]:
    """An S3 server with an empty bucket; gives its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _make_bucket(port, process)
            yield port
        finally:
            process.terminate()


def _make_bucket(port: int, process: subprocess.Popen[bytes]) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
    end = time.monotonic() + _START_S
    while True:
        try:
            urllib.request.urlopen(request).close()  # noqa: S310 - here
        except OSError as error:
            if process.poll() is not None or time.monotonic() > end:
                sys.exit(f"no S3 server: {error}; is moto installed, as in the development environment?")
            time.sleep(0.1)
        else:
            return


@contextlib.contextmanager
def _far(port: int, delay_ms: int) -> Iterator[int]:
    """The server, so far away; gives a port."""
    command = [sys.executable, str(BENCHMARKS / "peers" / "delay_proxy.py"), str(port), str(delay_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
