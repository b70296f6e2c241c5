// What every WebSocket peer says in a session, the same in each language: see
// TestWebSocketPeers. A service echoes each message; to "fragments" it sends "a", "b", "c"
// as one message in three frames where it can, and to "close CODE" it closes.
const sizes = [0, 1, 125, 126, 127, 1000, 65535, 65536, 70000];
const letters = [..."agßτ日🙂 "];

export const text = (n, i) => Array.from({ length: n }, (_, k) => letters[(k + i) % letters.length]).join("");
export const bytes = (n, i) => Buffer.from(Uint8Array.from({ length: n }, (_, k) => (k * 7 + i) & 0xff));
export const plan = (i) => ({
  text: text(sizes[i % sizes.length], i),
  binary: bytes(i % 100 === 99 ? 1 << 20 : sizes[(i + 4) % sizes.length], i),
  clientCloses: i % 2 === 0,
  code: [1000, 3000 + (i % 1000), 4999][i % 3],
  reason: i % 5 === 0 ? "" : `reason ${i} ß`,
});

// run runs the sessions, twenty at a time, and prints how many there were and the first
// disagreements of them.
export async function run(session) {
  const [url, key, count] = process.argv.slice(2);
  const wrong = [];
  let next = 0;
  let done = 0;
  await Promise.all(
    Array.from({ length: 20 }, async () => {
      while (next < Number(count)) {
        const i = next++;
        try {
          await Promise.race([session(url, key, i, plan(i)), new Promise((_, no) => setTimeout(() => no(new Error("nothing for 60 s")), 60e3).unref())]);
          done++;
        } catch (e) {
          wrong.push(`session ${i}: ${e.message}`);
        }
      }
    }),
  );
  console.log(JSON.stringify({ sessions: done, wrong: wrong.length, first: wrong.slice(0, 5) }));
  process.exit(0);
}

export function same(what, got, want) {
  const equal = Buffer.isBuffer(want) ? Buffer.compare(Buffer.from(got), want) === 0 : got === want;
  if (!equal) throw new Error(`${what}: got ${String(got).slice(0, 40)} (${got.length ?? ""}), want ${String(want).slice(0, 40)} (${want.length ?? ""})`);
}
