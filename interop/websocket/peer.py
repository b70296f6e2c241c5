"""Python's websockets as a client, and as a service where the first argument is "serve". See session.mjs."""
import asyncio
import json
import sys

import websockets

SIZES = [0, 1, 125, 126, 127, 1000, 65535, 65536, 70000]
LETTERS = "agßτ日🙂 "


def text(n, i):
    return "".join(LETTERS[(k + i) % len(LETTERS)] for k in range(n))


def binary(n, i):
    return bytes((k * 7 + i) & 0xFF for k in range(n))


def same(what, got, want):
    if got != want:
        raise AssertionError(f"{what}: got {str(got)[:40]} ({len(str(got))}), want {str(want)[:40]} ({len(str(want))})")


async def serve():
    async def session(c):
        try:
            async for message in c:
                if isinstance(message, str) and message.startswith("close "):
                    return await c.close(int(message[6:]), "as you wish")
                await c.send(["a", "b", "c"] if message == "fragments" else message)
        except websockets.ConnectionClosedError:  # with a code that is not 1000 or 1001
            pass

    server = await websockets.serve(session, "127.0.0.1", 0, subprotocols=["echo"], max_size=4 << 20)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.Future()


async def session(url, key, i):
    code = [1000, 3000 + i % 1000, 4999][i % 3]
    compression = "deflate" if i % 3 == 0 else None
    c = await websockets.connect(url, subprotocols=["x", "echo"], compression=compression, max_size=4 << 20,
                                 extra_headers={"Authorization": f"Bearer {key}"})
    same("subprotocol", c.subprotocol, "echo")
    same("extensions", c.extensions, [])
    for sent in (text(SIZES[i % len(SIZES)], i), binary(1 << 20 if i % 100 == 99 else SIZES[(i + 4) % len(SIZES)], i)):
        await c.send(sent)
        same("echo", await c.recv(), sent)
    await c.send(["fra", "", "g🙂", "ments"])
    pong = await c.ping(b"between")
    same("fragments", await c.recv(), "frag🙂ments")
    await pong
    await c.send("fragments")
    same("a message in fragments", await c.recv(), "abc")
    for k in range(5):
        await c.send(f"pipelined {k}")
    for k in range(5):
        same("pipelined", await c.recv(), f"pipelined {k}")
    if i % 2 == 0:
        await c.close(code, "" if i % 5 == 0 else f"reason {i} ß")
        same("the code of our own close", c.close_code, code)
    else:
        await c.send(f"close {code}")
        try:
            same("behind a close", await c.recv(), None)
        except websockets.ConnectionClosed:
            same("the service's close", (c.close_code, c.close_reason), (code, "as you wish"))


async def client(url, key, count):
    todo, wrong, done = iter(range(count)), [], 0

    async def worker():
        nonlocal done
        for i in todo:
            try:
                await asyncio.wait_for(session(url, key, i), 60)
                done += 1
            except Exception as e:  # whatever it is, it is counted
                wrong.append(f"session {i}: {type(e).__name__} {e}")

    await asyncio.gather(*(worker() for _ in range(20)))
    print(json.dumps({"sessions": done, "wrong": len(wrong), "first": wrong[:5]}))


asyncio.run(serve() if sys.argv[1] == "serve" else client(sys.argv[1], sys.argv[2], int(sys.argv[3])))
