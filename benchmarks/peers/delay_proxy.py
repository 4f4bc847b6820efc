"""A server far away: passes bytes on to one that is near, each request after a delay.

    python peers/delay_proxy.py PORT MILLISECONDS

Prints its own port. What a client sends is held back for the delay; answers are passed on as they come, so
that the delay is that of a round trip and the bandwidth that of the server.
"""

import asyncio
import contextlib
import sys

_READ_BYTES = 1 << 18


async def main(port: int, delay_s: float) -> None:
    """Serve until killed."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, downstream = await asyncio.open_connection("127.0.0.1", port)
        both = (_pass_on(reader, downstream, delay_s), _pass_on(upstream, writer, 0.0))
        with contextlib.suppress(OSError):
            await asyncio.gather(*both)

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    try:
        while data := await reader.read(_READ_BYTES):
            if delay_s:
                await asyncio.sleep(delay_s)
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]) / 1000))
