package websocket_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/websocket"
)

var mask = [4]byte{0x37, 0xfa, 0x21, 0x3d}

// read takes a stream apart, given to it in pieces of at most size bytes, and returns the
// frames that came, each as its opcode, its end and its payload, and what ended it.
func read(s websocket.Stream, stream []byte, size int) (frames []string, messages []string, fault *websocket.Fault) {
	var held, payload, message []byte
	for len(stream) > 0 {
		n := min(size, len(stream))
		held = append(held, stream[:n]...)
		stream = stream[n:]
		for len(held) > 0 {
			u, f := s.Next(held)
			if f != nil {
				return frames, messages, f
			}
			if len(u.Bytes) == 0 {
				break
			}
			if u.Begins {
				payload = nil
			}
			clear := websocket.AppendUnmasked(nil, u.Payload, u.Header.Mask, u.Offset)
			payload = append(payload, clear...)
			if !u.Opcode.Control() {
				message = append(message, clear...)
			}
			if u.Ends {
				end := "-"
				if u.Header.Final {
					end = "."
				}
				frames = append(frames, string('0'+rune(u.Header.Opcode))+end+string(payload))
			}
			if u.Last && !u.Opcode.Control() {
				messages = append(messages, string(message))
				message = nil
			}
			held = held[len(u.Bytes):]
		}
	}
	if len(held) > 0 {
		frames = append(frames, "...")
	}
	return frames, messages, nil
}

// client is a frame of a client.
func client(first byte, payload string) string {
	b := websocket.AppendFrame(nil, websocket.Opcode(first&0x0f), &mask, []byte(payload))
	b[0] = first
	return string(b)
}

// TestFramesOfTheRFC are the examples of RFC 6455, section 5.7.
func TestFramesOfTheRFC(t *testing.T) {
	for _, c := range []struct {
		from   bool
		stream string
		want   []string
	}{
		{false, "\x81\x05\x48\x65\x6c\x6c\x6f", []string{"1.Hello"}},
		{true, "\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", []string{"1.Hello"}},
		{false, "\x01\x03\x48\x65\x6c\x80\x02\x6c\x6f", []string{"1-Hel", "0.lo"}},
		{false, "\x89\x05\x48\x65\x6c\x6c\x6f", []string{"9.Hello"}},
		{true, "\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", []string{":.Hello"}},
		{false, "\x82\x7e\x01\x00" + strings.Repeat("x", 256), []string{"2." + strings.Repeat("x", 256)}},
		{false, "\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00" + strings.Repeat("x", 65536), []string{"2." + strings.Repeat("x", 65536)}},
	} {
		for _, size := range []int{1, 2, 3, 7, 4096, 1 << 20} {
			got, _, fault := read(websocket.Stream{FromClient: c.from}, []byte(c.stream), size)
			if diff := cmp.Diff(c.want, got); diff != "" || fault != nil {
				t.Errorf("%.20q in pieces of %d: %v\n%.300s", c.stream, size, fault, diff)
			}
		}
		frame := c.want[0]
		if len(c.want) == 1 {
			m := &mask
			if !c.from {
				m = nil
			}
			if got := websocket.AppendFrame(nil, websocket.Opcode(frame[0]-'0'), m, []byte(frame[2:])); string(got) != c.stream {
				t.Errorf("%.20q is written as %.20q", c.stream, got)
			}
		}
	}
}

// TestFaults are what a peer may not send, with the code that it is closed with, and what
// comes before each is told. They are the cases 3, 4, 5 and 9 of Autobahn's test suite for
// servers, and more lengths. Not one byte behind the fault is needed to see it.
func TestFaults(t *testing.T) {
	ok := client(0x81, "ok")
	long := func(first byte, length string) string { return string([]byte{first, 0xff}) + length + string(mask[:]) }
	for name, c := range map[string]struct {
		stream string
		code   websocket.Code
		frames []string
	}{
		"RSV1":                               {"\xc1", 1002, nil},
		"RSV2":                               {"\xa1", 1002, nil},
		"RSV3":                               {"\x91", 1002, nil},
		"all of them":                        {"\xf1", 1002, nil},
		"RSV3 of a ping":                     {ok + "\x99", 1002, []string{"1.ok"}},
		"RSV of a close":                     {ok + "\xc8", 1002, []string{"1.ok"}},
		"opcode 3":                           {"\x83", 1002, nil},
		"opcode 7":                           {ok + "\x87", 1002, []string{"1.ok"}},
		"opcode 11":                          {"\x8b", 1002, nil},
		"opcode 15":                          {ok + "\x8f", 1002, []string{"1.ok"}},
		"a ping of 126":                      {"\x89\xfe", 1002, nil},
		"a close of 126":                     {"\x88\xff", 1002, nil},
		"a fragmented ping":                  {"\x09", 1002, nil},
		"a fragmented pong":                  {ok + "\x0a", 1002, []string{"1.ok"}},
		"a fragmented close":                 {"\x08", 1002, nil},
		"a continuation of nothing":          {client(0x80, "x"), 1002, nil},
		"one that is not the last":           {client(0x00, "x"), 1002, nil},
		"a continuation behind a message":    {ok + client(0x80, "x"), 1002, []string{"1.ok"}},
		"a text within a text":               {client(0x01, "a") + client(0x81, "b"), 1002, []string{"1-a"}},
		"a binary within a text":             {client(0x01, "a") + client(0x00, "b") + client(0x02, "c"), 1002, []string{"1-a", "0-b"}},
		"no mask":                            {"\x81\x01", 1002, nil},
		"a ping without a mask":              {"\x89\x00", 1002, nil},
		"2^64-1":                             {long(0x82, "\xff\xff\xff\xff\xff\xff\xff\xff"), 1002, nil},
		"2^63":                               {long(0x82, "\x80\x00\x00\x00\x00\x00\x00\x00"), 1002, nil},
		"2^63-1":                             {long(0x82, "\x7f\xff\xff\xff\xff\xff\xff\xff"), 1002, nil},
		"2^62":                               {long(0x82, "\x40\x00\x00\x00\x00\x00\x00\x00"), 1002, nil},
		"2^53":                               {long(0x82, "\x00\x20\x00\x00\x00\x00\x00\x00"), 1002, nil},
		"2^53-1":                             {long(0x82, "\x00\x1f\xff\xff\xff\xff\xff\xff"), 1009, nil},
		"two that are more than 2^53-1":      {client(0x02, "a") + long(0x80, "\x00\x1f\xff\xff\xff\xff\xff\xff"), 1002, []string{"2-a"}},
		"one more than may be":               {long(0x82, "\x00\x00\x00\x00\x00\x01\x00\x01"), 1009, nil},
		"one more in fragments":              {client(0x01, strings.Repeat("x", 65536)) + client(0x80, "y"), 1009, []string{"1-" + strings.Repeat("x", 65536)}},
		"too many fragments":                 {client(0x01, "") + client(0x00, "") + client(0x00, "") + client(0x80, ""), 1009, []string{"1-", "0-", "0-"}},
		"125 in two bytes":                   {"\x82\xfe\x00\x7d" + string(mask[:]), 1002, nil},
		"0 in eight bytes":                   {long(0x82, "\x00\x00\x00\x00\x00\x00\x00\x00"), 1002, nil},
		"65535 in eight bytes":               {long(0x82, "\x00\x00\x00\x00\x00\x00\xff\xff"), 1002, nil},
		"a fault between two fragments":      {client(0x01, "a") + client(0x89, "p") + "\x83", 1002, []string{"1-a", "9.p"}},
		"a reserved bit in the continuation": {client(0x01, "a") + "\xc0", 1002, []string{"1-a"}},
	} {
		for size := range 20 {
			s := websocket.Stream{FromClient: true, Most: 65536, Frames: 3}
			frames, _, fault := read(s, []byte(c.stream), size+1)
			if fault == nil || fault.Code != c.code || !cmp.Equal(frames, c.frames) {
				t.Errorf("%s, in pieces of %d: %v, %.60q; want %d behind %.60q", name, size+1, fault, frames, c.code, c.frames)
			}
		}
	}
	if _, _, fault := read(websocket.Stream{}, []byte(client(0x81, "x")), 4096); fault == nil || fault.Code != 1002 {
		t.Errorf("a server masks: %v", fault)
	}
	for _, whole := range []string{client(0x82, strings.Repeat("x", 65536)), client(0x01, "") + client(0x00, "") + client(0x80, strings.Repeat("x", 65536))} {
		if _, messages, fault := read(websocket.Stream{FromClient: true, Most: 65536, Frames: 3}, []byte(whole), 1000); fault != nil || len(messages) != 1 || len(messages[0]) != 65536 {
			t.Errorf("just as much as may be: %v, %d messages", fault, len(messages))
		}
	}
}

// TestControlFramesBetweenFragments are told in their place, and change nothing of the
// message around them.
func TestControlFramesBetweenFragments(t *testing.T) {
	stream := client(0x01, "Hel") + client(0x89, "1") + client(0x00, "") + client(0x8a, "") + client(0x80, "lo") + client(0x82, "") + client(0x88, "\x03\xe8")
	for size := 1; size < len(stream)+1; size++ {
		frames, messages, fault := read(websocket.Stream{FromClient: true}, []byte(stream), size)
		if diff := cmp.Diff([]string{"1-Hel", "9.1", "0-", ":.", "0.lo", "2.", "8.\x03\xe8"}, frames); diff != "" || fault != nil {
			t.Fatalf("in pieces of %d: %v\n%s", size, fault, diff)
		}
		if diff := cmp.Diff([]string{"Hello", ""}, messages); diff != "" {
			t.Fatal(diff)
		}
	}
}

// TestWhereAStreamStands: within a frame, within a message, or between two.
func TestWhereAStreamStands(t *testing.T) {
	s := websocket.Stream{FromClient: true}
	for _, step := range []struct {
		bytes          string
		frame, message bool
	}{
		{client(0x01, "abc")[:7], true, true}, {client(0x01, "abc")[7:], false, true}, {client(0x89, "p"), false, true}, {client(0x80, ""), false, false},
		{client(0x81, "x"), false, false}, {client(0x02, ""), false, true},
	} {
		u, fault := s.Next([]byte(step.bytes))
		if fault != nil || len(u.Bytes) != len(step.bytes) || s.InFrame() != step.frame || s.InMessage() != step.message {
			t.Errorf("%q: %v, %d bytes, in a frame %v, in a message %v", step.bytes, fault, len(u.Bytes), s.InFrame(), s.InMessage())
		}
	}
}

// TestCloses are the cases 7 of Autobahn's test suite.
func TestCloses(t *testing.T) {
	for payload, want := range map[string]websocket.Code{"": 0, "\x03\xe8": 1000, "\x03\xe8bye": 1000, "\x0b\xb8": 3000, "\x13\x87": 4999, "\x03\xf6": 1014, "\x03\xf3": 1011, "\x03\xe8" + strings.Repeat("x", 123): 1000} {
		if code, fault := websocket.ParseClose([]byte(payload)); code != want || fault != nil {
			t.Errorf("%q: %d, %v; want %d", payload, code, fault, want)
		}
	}
	for payload, want := range map[string]websocket.Code{"x": 1002, "\x03\xe8\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80": 1007, "\x03\xe8\xff": 1007} {
		if _, fault := websocket.ParseClose([]byte(payload)); fault == nil || fault.Code != want {
			t.Errorf("%q: %v, want %d", payload, fault, want)
		}
	}
	for _, code := range []int{0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535} {
		if _, fault := websocket.ParseClose([]byte{byte(code >> 8), byte(code)}); fault == nil || fault.Code != 1002 || websocket.Code(code).Valid() {
			t.Errorf("%d: %v, want 1002", code, fault)
		}
	}
	for reason, want := range map[string]string{"": "", "bye": "bye", strings.Repeat("x", 123): strings.Repeat("x", 123), strings.Repeat("x", 124): strings.Repeat("x", 123), strings.Repeat("x", 121) + "日本": strings.Repeat("x", 121)} {
		b := websocket.AppendClose(nil, nil, 1008, reason)
		if string(b) != string([]byte{0x88, byte(2 + len(want)), 3, 0xf0})+want {
			t.Errorf("%q is closed with %q", reason, b)
		}
	}
}

// TestMasks: to mask is to unmask, whatever the length and wherever a piece begins.
func TestMasks(t *testing.T) {
	text := []byte(strings.Repeat("The quick brown fox. ", 10))
	for n := range len(text) {
		whole := websocket.AppendUnmasked([]byte("in front"), text[:n], mask, 0)[len("in front"):]
		for i, b := range whole {
			if b != text[i]^mask[i%4] {
				t.Fatalf("byte %d of %d", i, n)
			}
		}
		at := n / 3
		if got := websocket.AppendUnmasked(websocket.AppendUnmasked(nil, whole[:at], mask, 0), whole[at:], mask, int64(at)); !bytes.Equal(got, text[:n]) {
			t.Fatalf("%d bytes in two pieces: %q", n, got)
		}
	}
}

// FuzzStream: however a stream is cut into pieces, it is the same frames, the same
// messages and the same fault; what was told of it is what it begins with, byte for byte;
// and no message is more than may be.
func FuzzStream(f *testing.F) {
	for _, stream := range []string{
		client(0x81, "Hello"), client(0x01, "Hel") + client(0x89, "p") + client(0x80, "lo"), "\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x01\x02\x03\x04", client(0x88, "\x03\xe8bye"),
		"\xc1\x80", "\x81\xfe\x00\x7d", client(0x82, strings.Repeat("x", 300)), client(0x02, "") + client(0x00, "") + client(0x00, "") + client(0x00, ""),
	} {
		f.Add([]byte(stream), uint8(3), true)
		f.Add([]byte(stream), uint8(1), false)
	}
	f.Fuzz(func(t *testing.T, stream []byte, size uint8, from bool) {
		s := websocket.Stream{FromClient: from, Most: 1000, Frames: 10}
		frames, messages, fault := read(s, stream, len(stream)+1)
		again, messagesAgain, faultAgain := read(s, stream, int(size)+1)
		if !cmp.Equal(frames, again) || !cmp.Equal(messages, messagesAgain) || (fault == nil) != (faultAgain == nil) || fault != nil && *fault != *faultAgain {
			t.Fatalf("whole: %q %q %v; in pieces of %d: %q %q %v", frames, messages, fault, int(size)+1, again, messagesAgain, faultAgain)
		}
		for _, m := range messages {
			if len(m) > 1000 {
				t.Fatalf("a message of %d", len(m))
			}
		}
		rest := stream
		for len(rest) > 0 {
			u, fault := s.Next(rest)
			if fault != nil || len(u.Bytes) == 0 {
				break
			}
			if !bytes.HasPrefix(rest, u.Bytes) || len(u.Payload) > len(u.Bytes) || !bytes.HasSuffix(u.Bytes, u.Payload) || u.Begins == (len(u.Payload) == len(u.Bytes)) {
				t.Fatalf("%+v of %q", u, rest)
			}
			rest = rest[len(u.Bytes):]
		}
	})
}
