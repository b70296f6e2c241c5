package gateway

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"agentgw/internal/redact"
	"agentgw/internal/websocket"
)

// TestAVeilChangesTheCredentialAlone: of frames of all sorts, cut anywhere, those without it
// are the same bytes, and those with it are as long and have it nowhere, however many frames
// it is cut into; and what is whole waits for nothing.
func TestAVeilChangesTheCredentialAlone(t *testing.T) {
	const credential = "s3cr3t-token-0123456789"
	rapid.Check(t, func(t *rapid.T) {
		v, s := newVeil(redact.New(credential, "")), websocket.Stream{}
		has := rapid.Bool().Draw(t, "has")
		var stream []byte
		var messages []string
		for range rapid.IntRange(1, 5).Draw(t, "messages") {
			text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "yes", "s3c", " ", "\n", strings.Repeat("x", 200), "token", `{"k":"v"}`}), 0, 8).Draw(t, "text"), "")
			if has {
				text += credential + rapid.SampledFrom([]string{"", "s", "s3cr3t-"}).Draw(t, "behind")
			}
			messages = append(messages, text)
			opcode := websocket.Text
			for first := true; first || len(text) > 0; first = false {
				n := rapid.IntRange(0, len(text)).Draw(t, "fragment")
				last := n == len(text)
				b := websocket.AppendFrame(nil, opcode, nil, []byte(text[:n]))
				if !last {
					b[0] &^= 0x80
				}
				stream, text, opcode = append(stream, b...), text[n:], websocket.Continuation
				if last {
					break
				}
				if rapid.IntRange(0, 2).Draw(t, "ping") == 0 {
					stream = websocket.AppendFrame(stream, websocket.Ping, nil, []byte("ping"))
				}
			}
		}
		var out, held []byte
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), rapid.IntRange(1, 300).Draw(t, "piece"))
			held, rest = append(held, rest[:n]...), rest[n:]
			for len(held) > 0 {
				u, fault := s.Next(held)
				if fault != nil {
					t.Fatal(fault)
				}
				if len(u.Bytes) == 0 {
					break
				}
				out = v.add(out, u)
				held = held[len(u.Bytes):]
				if !s.InMessage() && (v.inFrame() || len(out) != len(stream)-len(rest)-len(held)) {
					t.Fatalf("%d bytes went on of %d, between two messages", len(out), len(stream)-len(rest)-len(held))
				}
			}
		}
		if !has && string(out) != string(stream) || len(out) != len(stream) {
			t.Fatalf("%q became %q", stream, out)
		}
		var got []string
		var again websocket.Stream
		message := ""
		for rest := out; len(rest) > 0; {
			u, fault := again.Next(rest)
			if fault != nil || len(u.Bytes) == 0 {
				t.Fatal(fault)
			}
			if rest = rest[len(u.Bytes):]; u.Opcode.Control() {
				continue
			}
			if message += string(u.Payload); u.Last {
				got, message = append(got, message), ""
			}
		}
		if len(got) != len(messages) || v.found() != has {
			t.Fatalf("%d messages of %d, found %v", len(got), len(messages), v.found())
		}
		for i := range got {
			if len(got[i]) != len(messages[i]) || strings.Contains(got[i], credential) || !has && got[i] != messages[i] {
				t.Fatalf("%q became %q", messages[i], got[i])
			}
		}
	})
}
