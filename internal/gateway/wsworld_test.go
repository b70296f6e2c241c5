package gateway_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"agentgw/internal/identity"
	"agentgw/internal/websocket"
)

// wsRegistry has a service of which some messages are charged, one of which none is, and
// one that takes no WebSocket.
const wsRegistry = `
version: 1
tenants:
  small: {rps: 1, burst: 2, max_inflight: 1}
  wide: {rps: 100000, burst: 100000, max_inflight: 100000}
services:
  llm: {base_url: "%[1]s/v1", allow_private: true, passthrough: true, dialect: openai, websocket: {charge: [response.create]}}
  claude: {base_url: "%[1]s/v1", allow_private: true, passthrough: true, dialect: anthropic, websocket: {charge: [response.create]}}
  plain: {base_url: "%[1]s/v1", allow_private: true, passthrough: true, websocket: {}}
  native: {base_url: "%[1]s/v1", allow_private: true, passthrough: true, websocket: {charge: [response.create]}}
  bearer: {base_url: "%[1]s/v1", allow_private: true, passthrough: true, credential: {type: bearer}, websocket: {charge: [response.create]}}
  declared: {base_url: "%[1]s/v1", allow_private: true, websocket: {}, actions: {talk: {method: GET, path: "/talk/{id}", params: {id: string}}}}
  slow: {base_url: "%[1]s/v1", allow_private: true, passthrough: true, rate_limit: {rps: 0.1, burst: 2}, websocket: {charge: [response.create]}}
  none: {base_url: "%[1]s/v1", allow_private: true, passthrough: true}
`

// wsKey is what every handshake of a test asks with, and wsAccept what answers it: those of
// RFC 6455, section 1.3.
const (
	wsKey    = "dGhlIHNhbXBsZSBub25jZQ=="
	wsAccept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
)

// side is an end of a WebSocket in a test: a client, or a service.
type side struct {
	net.Conn
	r    *bufio.Reader
	mask *[4]byte // of what it sends; nil: it is a service
}

// frame is one that came.
type frame struct {
	websocket.Header
	payload string
}

func (f frame) String() string { return fmt.Sprintf("%d %v %q", f.Opcode, f.Final, f.payload) }

// code is that of a close.
func (f frame) code() int {
	if f.Opcode != websocket.Closing || len(f.payload) < 2 {
		return 0
	}
	return int(binary.BigEndian.Uint16([]byte(f.payload)))
}

// next reads a frame.
func (s *side) next() (frame, error) {
	_ = s.SetReadDeadline(time.Now().Add(30 * time.Second)) // a test fails, and does not hang
	var head []byte
	for {
		b, err := s.r.ReadByte()
		if err != nil {
			return frame{}, err
		}
		head = append(head, b)
		h, fault := websocket.ParseHeader(head)
		if fault != nil {
			return frame{}, fault
		}
		if h.Size == 0 || h.Size > len(head) {
			continue
		}
		payload := make([]byte, h.Length)
		if _, err := io.ReadFull(s.r, payload); err != nil {
			return frame{}, err
		}
		if h.Masked == (s.mask != nil) {
			return frame{}, errors.New("masked, or not, as it should not be")
		}
		if h.Masked {
			payload = websocket.AppendUnmasked(nil, payload, h.Mask, 0)
		}
		return frame{h, string(payload)}, nil
	}
}

func (s *side) send(o websocket.Opcode, payload string) error {
	return s.raw(websocket.AppendFrame(nil, o, s.mask, []byte(payload)))
}

func (s *side) close(code websocket.Code, reason string) error {
	return s.raw(websocket.AppendClose(nil, s.mask, code, reason))
}

func (s *side) raw(b []byte) error {
	_, err := s.Write(b)
	return err
}

// accept answers an upgrade as a service does.
func accept(rw http.ResponseWriter, r *http.Request, header ...string) (*side, error) {
	c, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return nil, err
	}
	text := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + websocket.Accept(r.Header.Get("Sec-Websocket-Key")) + "\r\n"
	for _, line := range header {
		text += line + "\r\n"
	}
	if _, err := io.WriteString(c, text+"\r\n"); err != nil {
		_ = c.Close()
		return nil, err
	}
	return &side{Conn: c, r: buffered.Reader}, nil
}

// talks is a service that answers each message with its own text, echoes the rest as it
// is and answers a close.
func talks(rw http.ResponseWriter, r *http.Request) {
	s, err := accept(rw, r)
	if err != nil {
		return
	}
	defer func() { _ = s.Close() }()
	for {
		f, err := s.next()
		if err != nil {
			return
		}
		if f.Opcode == websocket.Ping {
			f.Opcode = websocket.Pong
		}
		b := websocket.AppendFrame(nil, f.Opcode, nil, []byte(f.payload))
		if !f.Final {
			b[0] &^= 0x80
		}
		if s.raw(b) != nil || f.Opcode == websocket.Closing {
			return
		}
	}
}

// wsWorld is a world whose services are spoken to over WebSocket, too.
func wsWorld(t testing.TB, s setup, upstream http.HandlerFunc, keys ...*identity.Key) *world {
	t.Helper()
	if s.registry == "" {
		s.registry = wsRegistry
	}
	if len(keys) == 0 {
		keys = []*identity.Key{wide("k")}
	}
	return s.world(t, upstream, keys...)
}

// asks is the text of an upgrade, with further header lines.
func (w *world) asks(target, key string, header ...string) string {
	return w.proxied("GET", target, key, "", append([]string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + wsKey}, header...)...)
}

// knock asks for an upgrade and returns the answer.
func (w *world) knock(request string) (*side, *http.Response, error) {
	c, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	s := &side{Conn: c, r: bufio.NewReader(c), mask: &[4]byte{1, 2, 3, 4}}
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	if err := s.raw([]byte(request)); err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	res, err := http.ReadResponse(s.r, &http.Request{Method: "GET"})
	if err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	return s, res, nil
}

// talk opens a WebSocket.
func (w *world) talk(target, key string, header ...string) *side {
	w.t.Helper()
	s, res, err := w.knock(w.asks(target, key, header...))
	if err != nil {
		w.t.Fatal(err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(res.Body)
		w.t.Fatalf("%s: %s", res.Status, body)
	}
	w.t.Cleanup(func() { _ = s.Close() })
	return s
}

// says sends a text and returns the next frame.
func (s *side) says(t testing.TB, text string) frame {
	t.Helper()
	if err := s.send(websocket.Text, text); err != nil {
		t.Fatal(err)
	}
	return s.hears(t)
}

func (s *side) hears(t testing.TB) frame {
	t.Helper()
	f, err := s.next()
	if err != nil {
		t.Fatalf("no frame came: %v", err)
	}
	return f
}

// wantClose wants a close with that code next, and then the end.
func (s *side) wantClose(t testing.TB, code int) {
	t.Helper()
	if f := s.hears(t); f.code() != code {
		t.Fatalf("%v (code %d), want a close with %d", f, f.code(), code)
	}
	if f, err := s.next(); err == nil {
		t.Fatalf("%v came behind a close", f)
	}
}

// idle waits until no slot is taken.
func (w *world) idle(tenant string) {
	w.t.Helper()
	within(w.t, 5*time.Second, "no slot is taken", func() bool { return w.inFlight(tenant) == 0 && w.pooled() == 0 })
}

// heardBy keeps what a service has heard.
type heardBy struct {
	mu     sync.Mutex
	frames []frame
}

func (h *heardBy) add(f frame) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.frames = append(h.frames, f)
}

func (h *heardBy) texts() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []string
	for _, f := range h.frames {
		list = append(list, f.payload)
	}
	return strings.Join(list, "|")
}
