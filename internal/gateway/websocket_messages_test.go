package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
	"agentgw/internal/websocket"
)

// counts is a service that answers each whole message by its length, and pings.
func counts(heard *heardBy) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		s, err := accept(rw, r)
		if err != nil {
			return
		}
		defer func() { _ = s.Close() }()
		message := ""
		for {
			f, err := s.next()
			if err != nil {
				return
			}
			heard.add(f)
			switch {
			case f.Opcode == websocket.Closing:
				_ = s.send(f.Opcode, f.payload)
				return
			case f.Opcode == websocket.Ping:
				_ = s.send(websocket.Pong, f.payload)
			case f.Opcode.Control():
			default:
				if message += f.payload; f.Final {
					_ = s.send(websocket.Text, fmt.Sprint("heard ", len(message)))
					message = ""
				}
			}
		}
	}
}

// fragment is a data frame that is not a whole message.
func (s *side) fragment(o websocket.Opcode, final bool, payload string) error {
	b := websocket.AppendFrame(nil, o, s.mask, []byte(payload))
	if !final {
		b[0] &^= 0x80
	}
	return s.raw(b)
}

// TestWhichMessagesAreCharged: those that are listed, and those of which nobody can tell
// for certain; once, in however many frames; and nothing else.
func TestWhichMessagesAreCharged(t *testing.T) {
	const create = `{"type":"response.create","n":1}`
	for name, c := range map[string]struct {
		send    func(s *side) error
		answers int // frames that come
		charged int
	}{
		"listed":          {func(s *side) error { return s.send(websocket.Text, create) }, 1, 1},
		"in another case": {func(s *side) error { return s.send(websocket.Text, `{"type":"Response.Create"}`) }, 1, 1},
		"escaped":         {func(s *side) error { return s.send(websocket.Text, `{"type":"response\u002ecreate"}`) }, 1, 1},
		"binary":          {func(s *side) error { return s.send(websocket.Binary, `{"type":"steer"}`) }, 1, 1},
		"no JSON":         {func(s *side) error { return s.send(websocket.Text, `hello`) }, 1, 1},
		"twice":           {func(s *side) error { return s.send(websocket.Text, `{"type":"steer","type":"response.create"}`) }, 1, 1},
		"a twin":          {func(s *side) error { return s.send(websocket.Text, `{"type":"steer","TYPE":"response.create"}`) }, 1, 1},
		"an escaped name": {func(s *side) error { return s.send(websocket.Text, `{"typ\u0065":"steer"}`) }, 1, 1},
		"two objects":     {func(s *side) error { return s.send(websocket.Text, `{"type":"steer"} `+create) }, 1, 1},
		"empty":           {func(s *side) error { return s.send(websocket.Text, ``) }, 1, 1},
		"not listed":      {func(s *side) error { return s.send(websocket.Text, `{"type":"steer","x":`+create+`}`) }, 1, 0},
		"without a type":  {func(s *side) error { return s.send(websocket.Text, `{"x":1}`) }, 1, 0},
		"in fragments": {func(s *side) error {
			return errorsOf(s.fragment(1, false, create[:5]), s.fragment(0, false, ""), s.fragment(0, true, create[5:]))
		}, 1, 1},
		"a ping between": {func(s *side) error {
			return errorsOf(s.fragment(1, false, create[:9]), s.send(websocket.Ping, "p"), s.fragment(0, true, create[9:]))
		}, 2, 1},
		"fragments, unlisted": {func(s *side) error {
			return errorsOf(s.fragment(1, false, `{"type":`), s.fragment(0, true, `"steer"}`))
		}, 1, 0},
		"a letter in two": {func(s *side) error {
			return errorsOf(s.fragment(1, false, "{\"x\":\"\xe6\x97"), s.fragment(0, true, "\xa5\"}"))
		}, 1, 0},
		"pings and pongs": {func(s *side) error {
			return errorsOf(s.send(websocket.Ping, "p"), s.send(websocket.Pong, "q"), s.send(websocket.Ping, create[:9]))
		}, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := wsWorld(t, setup{}, counts(&heardBy{}))
			s := w.talk("llm/x", "k")
			before := w.left("k")
			if err := c.send(s); err != nil {
				t.Fatal(err)
			}
			for range c.answers {
				if f := s.hears(t); strings.Contains(f.payload, "error") {
					t.Error(f)
				}
			}
			if got := before - w.left("k"); got != int64(c.charged) {
				t.Errorf("%d were charged, want %d", got, c.charged)
			}
			_ = s.close(websocket.Normal, "")
			s.wantClose(t, 1000)
			list := w.ledger.all()
			if n := list[len(list)-1].Messages; n != int64(c.charged) || len(list) != 2 {
				t.Errorf("the outcome says %d of %d records", n, len(list))
			}
		})
	}
	w := wsWorld(t, setup{}, counts(&heardBy{}))
	s := w.talk("plain/x", "k")
	before := w.left("k")
	if s.says(t, create); w.left("k") != before {
		t.Error("a service that lists nothing has a message charged")
	}
}

func errorsOf(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// left is how many tokens a key has.
func (w *world) left(key string) int64 {
	limit, err := ratelimit.NewLimit(100000, 100000)
	if err != nil {
		w.t.Fatal(err)
	}
	b, _ := w.limiter.Peek(ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, "key:"+key, limit), w.nanos.Nanos())
	return b.Remaining
}

// TestErrorFrames are in the dialect of the service.
func TestErrorFrames(t *testing.T) {
	w := wsWorld(t, setup{settings: func(s *config.Settings) { s.RateKeyRPS, s.RateKeyBurst = 1.0/60, 3 }}, counts(&heardBy{}), &identity.Key{ID: "k", Services: []string{"*"}, Users: []string{"*"}, Tenant: "wide"})
	const told = "the key limit is a burst of 3 calls, refilled over 3m; wait 1m0s and call again"
	request := ""
	for _, service := range []string{"native", "claude", "llm"} {
		s, res, err := w.knock(w.asks(service+"/x", "k"))
		if err != nil || res.StatusCode != 101 {
			t.Fatal(service, err, res)
		}
		request = res.Header.Get("X-Request-Id")
		for i := range 3 { // of which the first two use what is left
			if i < 2 && service != "native" {
				continue
			}
			if err := s.send(websocket.Text, "x"); err != nil {
				t.Fatal(err)
			}
			f := s.hears(t)
			if i < 2 {
				continue
			}
			var got struct {
				Type      string
				Status    int
				RequestID string `json:"request_id"`
				Error     map[string]any
			}
			if err := json.Unmarshal([]byte(f.payload), &got); err != nil || got.Type != "error" || got.Status != 429 {
				t.Fatalf("%s: %v %v", service, f, err)
			}
			switch service {
			case "native":
				list := w.ledger.all()
				if got.Error["code"] != "rate_limited" || got.Error["limit"] != "key" || got.Error["detail"] != told || got.Error["receipt"] != list[len(list)-1].ID || got.Error["retry_after_ms"].(float64) < 60000 {
					t.Errorf("%v", f)
				}
			case "claude":
				if want := `{"type":"error","status":429,"error":{"type":"rate_limit_error","message":"` + told + `"},"request_id":"req_` + request + `"}`; f.payload != want {
					t.Errorf("%v, want %s", f, want)
				}
			case "llm":
				if want := `{"type":"error","status":429,"error":{"message":"` + told + `","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`; f.payload != want {
					t.Errorf("%v, want %s", f, want)
				}
			}
		}
		_ = s.Close()
		w.clock.Advance(time.Minute) // for the next upgrade
	}
}

// TestAMessageMeetsEveryLimit that a call would, but those of slots: the tenant's, the
// service's, a rule's; and by the limits that are in force when it comes.
func TestAMessageMeetsEveryLimit(t *testing.T) {
	keys := func() []*identity.Key {
		return []*identity.Key{wide("k"), {ID: "small", Services: []string{"*"}, Users: []string{"*"}, Tenant: "small", Limits: &identity.Limits{RPS: 1000, Burst: 1000}}}
	}
	rules := "rules: [{name: few, key: caller, window: 1h, max: 3, when: 'service == \"native\"'}, {name: bytes, key: caller, window: 1h, max: 20, count: bytes, when: 'service == \"claude\"'}]\n"
	made := keys()
	w := wsWorld(t, setup{registry: wsRegistry + rules}, counts(&heardBy{}), made...)
	refusedBy := func(s *side, text string) string {
		t.Helper()
		if f := s.says(t, text); !strings.Contains(f.payload, `"status":429`) {
			return ""
		}
		list := w.ledger.all()
		return list[len(list)-1].Limit
	}
	for _, c := range []struct {
		service, key, limit string
		after               int
	}{{"llm", "small", "tenant", 1}, {"slow", "k", "service", 1}, {"native", "k", "few", 2}} {
		s := w.talk(c.service+"/x", c.key)
		for i := range c.after {
			if by := refusedBy(s, "x"); by != "" {
				t.Errorf("%s: message %d is refused by %s", c.service, i, by)
			}
		}
		if by := refusedBy(s, "x"); by != c.limit {
			t.Errorf("%s: refused by %q, want %s", c.service, by, c.limit)
		}
	}
	// Bytes: those of a charged message are counted with it, and of all else as they flow.
	s := w.talk("claude/x", "k")
	if by := refusedBy(s, strings.Repeat("x", 15)); by != "" { // and 9 and a header come back
		t.Errorf("refused by %s", by)
	}
	if by := refusedBy(s, "x"); by != "bytes" {
		t.Errorf("refused by %q, want bytes", by)
	}

	// A connection of before a change is charged by what is in force.
	s = w.talk("llm/x", "k")
	if by := refusedBy(s, "x"); by != "" {
		t.Errorf("refused by %s", by)
	}
	made[0].Limits = &identity.Limits{RPS: 0.001, Burst: 1}
	w.use(strings.Replace(wsRegistry, "  llm: {", "  llm: {rate_limit: {rps: 0.001, burst: 2}, ", 1), made...)
	refusals := 0
	for range 4 {
		if refusedBy(s, "x") != "" {
			refusals++
		}
	}
	if refusals < 2 {
		t.Errorf("%d of 4 were refused under a burst of 1 and one of 2", refusals)
	}
}

// TestBytesPassUntouched: frames of both sides, of all sorts and cut anywhere, arrive as
// they were sent; where messages are charged, too.
func TestBytesPassUntouched(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, service := range []string{"plain", "llm"} {
		var toService, toClient []byte
		frames := func(masked bool) (all []byte) {
			for range 40 {
				payload := make([]byte, []int{0, 1, 125, 126, 3000, 5000, 65535, 65536, 70000}[random.IntN(9)])
				for i := range payload {
					payload[i] = "abc \n{}\""[random.IntN(8)]
				}
				m := func() *[4]byte {
					if !masked {
						return nil
					}
					return &[4]byte{byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32())}
				}
				if random.IntN(3) == 0 { // in fragments
					for i, o := range []websocket.Opcode{websocket.Text, websocket.Continuation, websocket.Continuation} {
						b := websocket.AppendFrame(nil, o, m(), payload[i*len(payload)/3:(i+1)*len(payload)/3])
						if i < 2 {
							b[0] &^= 0x80
						}
						all = append(all, b...)
						if service == "plain" && random.IntN(2) == 0 && i < 2 { // which may overtake where messages are collected
							all = websocket.AppendFrame(all, websocket.Ping, m(), []byte("p"))
						}
					}
					continue
				}
				all = websocket.AppendFrame(all, []websocket.Opcode{websocket.Text, websocket.Binary, websocket.Pong}[random.IntN(2)], m(), payload)
			}
			return all
		}
		toService, toClient = frames(true), frames(false)
		got := make(chan []byte, 1)
		w := wsWorld(t, setup{}, func(rw http.ResponseWriter, r *http.Request) {
			s, err := accept(rw, r)
			if err != nil {
				return
			}
			defer func() { _ = s.Close() }()
			_ = s.SetDeadline(time.Now().Add(30 * time.Second))
			said := make(chan struct{})
			go func() { s.trickle(toClient, 7777); close(said) }()
			heard := make([]byte, len(toService))
			n, _ := io.ReadFull(s.r, heard)
			got <- heard[:n]
			<-said
			_ = s.close(websocket.Normal, "")
			_, _ = s.next()
		})
		s := w.talk(service+"/x", "k")
		_ = s.SetDeadline(time.Now().Add(30 * time.Second))
		go s.trickle(toService, 4321)
		heard := make([]byte, len(toClient))
		if n, err := io.ReadFull(s.r, heard); err != nil || string(heard) != string(toClient) {
			t.Errorf("%s: the client got %d of %d bytes, %v", service, n, len(toClient), err)
		}
		if b := <-got; string(b) != string(toService) {
			t.Errorf("%s: the service got %d bytes, want %d", service, len(b), len(toService))
		}
		s.wantClose(t, 1000)
		w.idle("tenant:wide")
		list := w.ledger.all()
		if r := list[len(list)-1]; r.In < int64(len(toService)) || r.Out != int64(len(toClient))+4 || r.Ending != receipts.Complete {
			t.Errorf("%+v", r)
		}
	}
}

// trickle writes b in pieces.
func (s *side) trickle(b []byte, size int) {
	for len(b) > 0 {
		n := min(size, len(b))
		if s.raw(b[:n]) != nil {
			return
		}
		b = b[n:]
	}
}

// guided is a service that does as it is told: it sends what comes on the channel, and
// tells what it hears, until it is told no more.
type guided struct {
	says  chan string // "": that it ends its side
	heard chan frame
}

func newGuided() *guided {
	return &guided{says: make(chan string), heard: make(chan frame, 100)}
}

func (g *guided) serve(rw http.ResponseWriter, r *http.Request) {
	s, err := accept(rw, r)
	if err != nil {
		return
	}
	defer func() { _ = s.Close() }()
	said := make(chan struct{})
	go func() {
		defer close(said)
		for text := range g.says {
			if text == "" {
				endSide(s)
			}
			_ = s.raw([]byte(text))
		}
	}()
	for f, err := s.next(); err == nil; f, err = s.next() {
		g.heard <- f
	}
	<-said
}

// hears is the next frame that the service gets.
func (g *guided) hears(t *testing.T) frame {
	t.Helper()
	select {
	case f := <-g.heard:
		return f
	case <-time.After(30 * time.Second):
		t.Fatal("the service hears nothing")
		return frame{}
	}
}

// TestAnErrorFrameWaitsForItsPlace: it stands behind the message that the service is just
// sending, and not between two of its fragments, where it would be a part of that.
func TestAnErrorFrameWaitsForItsPlace(t *testing.T) {
	g := newGuided()
	defer close(g.says)
	w := wsWorld(t, setup{settings: func(s *config.Settings) { s.RateKeyRPS, s.RateKeyBurst = 1.0/60, 1 }}, g.serve, &identity.Key{ID: "k", Services: []string{"*"}, Users: []string{"*"}, Tenant: "wide"})
	s := w.talk("llm/x", "k")
	g.says <- "\x01\x02ab"
	if f := s.hears(t); f.payload != "ab" {
		t.Fatal(f)
	}
	for range 2 {
		if err := s.send(websocket.Text, "x"); err != nil {
			t.Fatal(err)
		}
	}
	within(t, 5*time.Second, "both are refused", func() bool { return len(w.ledger.all()) == 3 })
	g.says <- "\x89\x01p\x00\x05c"
	if f := s.hears(t); f.payload != "p" {
		t.Fatal(f)
	}
	// The next message has begun by the end of what comes, and there are two places.
	g.says <- "defg\x80\x01h\x81\x01i\x01\x01j"
	for _, want := range []string{"cdefg", "h", "i", `{"type":"error"`, `{"type":"error"`, "j"} {
		if f := s.hears(t); !strings.HasPrefix(f.payload, want) {
			t.Fatalf("%v, want %s", f, want)
		}
	}
}

// TestADrainWaitsForTheMessage that either side is sending, where the gateway passes on
// what there is of it; and ends a connection at once where none is under way.
func TestADrainWaitsForTheMessage(t *testing.T) {
	for _, c := range []struct {
		name, service string
		begun, rest   string // of the service
		sent, more    string // of the client
		at            bool   // ends at once
	}{
		{"the service's, in a frame", "plain", "\x81\x04ab", "cd", "", "", false},
		{"the service's, between two frames", "plain", "\x01\x02ab", "\x80\x02cd", "", "", false},
		{"the client's, in a frame", "plain", "", "", client(0x81, "abcd")[:8], client(0x81, "abcd")[8:], false},
		{"the client's, between two frames", "plain", "", "", client(0x01, "ab"), client(0x80, "cd"), false},
		{"both", "plain", "\x81\x04ab", "cd", client(0x81, "abcd")[:8], client(0x81, "abcd")[8:], false},
		{"the client's, which is collected", "llm", "", "", client(0x81, "abcd")[:8], "", true},
		{"none", "plain", "\x81\x02ab", "", client(0x81, "abcd"), "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGuided()
			defer close(g.says)
			w := wsWorld(t, setup{}, g.serve)
			s := w.talk(c.service+"/x", "k")
			if err := s.raw([]byte(c.sent)); err != nil {
				t.Fatal(err)
			}
			if c.sent == client(0x81, "abcd") || c.sent == client(0x01, "ab") {
				g.hears(t)
			}
			if c.sent != "" && !c.at { // before the service's is, which would look the same
				within(t, 5*time.Second, "a message is under way", func() bool { return w.gateway.MidMessage() == 1 })
			}
			if c.begun != "" {
				g.says <- c.begun
				if b, err := s.r.Peek(len(c.begun)); err != nil || string(b) != c.begun {
					t.Fatal(b, err)
				}
			}
			w.gateway.Drain()
			if !c.at {
				if n := w.inFlight("tenant:wide"); n != 1 {
					t.Fatalf("%d slots are taken in the middle of a message", n)
				}
			}
			if c.rest != "" {
				g.says <- c.rest
			}
			if err := s.raw([]byte(c.more)); err != nil {
				t.Fatal(err)
			}
			if c.more != "" {
				if f := g.hears(t); !f.Final {
					t.Error(f)
				}
			}
			heard := ""
			for {
				f := s.hears(t)
				if f.Opcode == websocket.Closing {
					if f.code() != 1001 {
						t.Errorf("%v", f)
					}
					break
				}
				heard += f.payload
			}
			if c.rest != "" && heard != "abcd" || c.rest == "" && c.begun != "" && heard != "ab" {
				t.Errorf("the client heard %q", heard)
			}
			if f := g.hears(t); f.code() != 1001 {
				t.Errorf("the service got %v, want a close with 1001", f)
			}
			w.idle("tenant:wide")
			list := w.ledger.all()
			if r := list[len(list)-1]; r.Ending != receipts.Shutdown {
				t.Errorf("%+v", r)
			}
		})
	}
}

// client is a frame of a client whose first byte is that.
func client(first byte, payload string) string {
	b := websocket.AppendFrame(nil, websocket.Opcode(first&0x0f), &[4]byte{1, 2, 3, 4}, []byte(payload))
	b[0] = first
	return string(b)
}

// TestWhatIsLeftIsDelivered: a side that has ended its own still gets what the other says
// in the next second, and then both are closed.
func TestWhatIsLeftIsDelivered(t *testing.T) {
	g := newGuided()
	defer close(g.says)
	w := wsWorld(t, setup{settings: func(s *config.Settings) { s.ClientStall = 0 }}, g.serve)
	s := w.talk("plain/x", "k")
	endSide(s)
	g.says <- "\x81\x02ab" // it has heard the end, and speaks on
	if f := s.hears(t); f.payload != "ab" {
		t.Error(f)
	}
	if n := w.inFlight("tenant:wide"); n > 1 {
		t.Errorf("%d slots", n)
	}
	within(t, 5*time.Second, "no slot is taken", func() bool { w.clock.Advance(time.Second); return w.inFlight("tenant:wide") == 0 })

	g = newGuided()
	defer close(g.says)
	w = wsWorld(t, setup{settings: func(s *config.Settings) { s.ClientStall = 0 }}, g.serve)
	s = w.talk("plain/x", "k")
	g.says <- "\x81\x02ab"
	g.says <- "" // the service ends its side
	if f := s.hears(t); f.payload != "ab" {
		t.Error(f)
	}
	if err := s.send(websocket.Text, "cd"); err != nil {
		t.Fatal(err)
	}
	if f := g.hears(t); f.payload != "cd" {
		t.Error(f)
	}
	within(t, 5*time.Second, "no slot is taken", func() bool { w.clock.Advance(time.Second); return w.inFlight("tenant:wide") == 0 })
	s.wantClose(t, 1014)
}

// TestAServiceThatDoesNotAnswerAClose is waited for no longer than five seconds.
func TestAServiceThatDoesNotAnswerAClose(t *testing.T) {
	g := newGuided()
	defer close(g.says)
	w := wsWorld(t, setup{settings: func(s *config.Settings) { s.ClientStall = 0 }}, g.serve)
	s := w.talk("plain/x", "k")
	if err := s.close(websocket.Normal, "bye"); err != nil {
		t.Fatal(err)
	}
	if f := g.hears(t); f.code() != 1000 {
		t.Error(f)
	}
	if err := w.clock.BlockUntilContext(t.Context(), 2); err != nil { // that of the silence, and this
		t.Fatal(err)
	}
	w.clock.Advance(4 * time.Second)
	if n := w.inFlight("tenant:wide"); n != 1 {
		t.Errorf("%d slots are taken after 4 s", n)
	}
	within(t, 5*time.Second, "no slot is taken", func() bool { w.clock.Advance(time.Second); return w.inFlight("tenant:wide") == 0 })
	s.wantClose(t, 1014)
	list := w.ledger.all()
	if r := list[len(list)-1]; r.Ending != receipts.Timeout {
		t.Errorf("%+v", r)
	}
}

// TestPingsHaveABucketOfTheirOwn: sixty at once and one a second after that. They are no
// messages, and cost no token.
func TestPingsHaveABucketOfTheirOwn(t *testing.T) {
	w := wsWorld(t, setup{}, counts(&heardBy{}))
	s := w.talk("llm/x", "k")
	before := w.left("k")
	ping := func() {
		t.Helper()
		if err := s.send(websocket.Ping, "p"); err != nil {
			t.Fatal(err)
		}
	}
	for range 60 {
		ping()
		if f := s.hears(t); f.Opcode != websocket.Pong {
			t.Fatal(f)
		}
	}
	if left := w.left("k"); left != before {
		t.Errorf("the key has %d tokens, and had %d", left, before)
	}
	w.clock.Advance(time.Second)
	ping()
	if f := s.hears(t); f.Opcode != websocket.Pong {
		t.Error(f)
	}
	ping()
	s.wantClose(t, 1008)
}

// TestAFrameThatIsNotEnded holds its slot no longer than AGENTGATE_CLIENT_STALL.
func TestAFrameThatIsNotEnded(t *testing.T) {
	for _, service := range []string{"plain", "llm"} {
		w := wsWorld(t, setup{settings: func(s *config.Settings) { s.ClientStall = 200 * time.Millisecond }}, counts(&heardBy{}))
		s := w.talk(service+"/x", "k")
		if f := s.says(t, "x"); f.payload != "heard 1" {
			t.Fatal(f)
		}
		if err := s.raw([]byte(client(0x81, "abcd")[:8])); err != nil {
			t.Fatal(err)
		}
		s.wantClose(t, 1008)
		w.idle("tenant:wide")
		list := w.ledger.all()
		if r := list[len(list)-1]; r.Ending != receipts.SlowClient {
			t.Errorf("%+v", r)
		}
	}
}

// TestFramesThatComeBeforeTheAnswer are the first of the conversation.
func TestFramesThatComeBeforeTheAnswer(t *testing.T) {
	for _, early := range []int{1, 100, 5000} {
		w := wsWorld(t, setup{}, counts(&heardBy{}))
		s, res, err := w.knock(w.asks("plain/x", "k") + client(0x81, strings.Repeat("x", early)) + client(0x89, "p"))
		if err != nil || res.StatusCode != 101 {
			t.Fatal(err, res)
		}
		if f := s.hears(t); f.payload != fmt.Sprint("heard ", early) {
			t.Error(f)
		}
		if f := s.hears(t); f.Opcode != websocket.Pong {
			t.Error(f)
		}
		_ = s.Close()
	}
}

// TestAnOutcomeThatIsLost is not followed by an end that looks like one that is recorded.
func TestAnOutcomeThatIsLost(t *testing.T) {
	w := wsWorld(t, setup{}, counts(&heardBy{}))
	s := w.talk("plain/x", "k")
	w.ledger.mu.Lock()
	w.ledger.fail = receipts.ErrUnavailable
	w.ledger.mu.Unlock()
	_ = s.close(websocket.Normal, "")
	s.wantClose(t, 1011)
	w.idle("tenant:wide")
}

// TestAnAnswerToTheGatewaysCloseIsNotTheServices: what a client answers to a close of the
// gateway's own does not reach the service, which is told that the client goes away.
func TestAnAnswerToTheGatewaysCloseIsNotTheServices(t *testing.T) {
	heard := make(chan frame, 1)
	w := wsWorld(t, setup{}, func(rw http.ResponseWriter, r *http.Request) {
		s, err := accept(rw, r)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = s.Close() }()
		_ = s.raw([]byte("\x83\x00")) // no opcode of a service's
		f, err := s.next()
		if err != nil {
			t.Error(err)
		}
		heard <- f
	})
	for range 40 { // who comes first, the answer or the word to the service, is up to chance
		s := w.talk("plain/x", "k")
		if f := s.hears(t); f.code() != int(websocket.BadGateway) {
			t.Fatal(f)
		}
		_ = s.close(websocket.BadGateway, "")
		if f := soon(t, heard); f.code() != int(websocket.GoingAway) {
			t.Fatalf("the service heard %v (%d)", f, f.code())
		}
		_ = s.Close()
	}
	w.idle("tenant:wide")
}

// TestAServicesCloseThatMayNotBeSentIsNotPassedOn: the client is told of a service that breaks
// the protocol, behind what that has said in order (RFC 6455, section 7.4.1).
func TestAServicesCloseThatMayNotBeSentIsNotPassedOn(t *testing.T) {
	closes := map[string]string{"half a code": "\x88\x01\x03", "no UTF-8": "\x88\x03\x03\xe8\xff"}
	for _, code := range []websocket.Code{0, 999, 1004, 1005, 1006, 1015, 2999, 5000} {
		closes[fmt.Sprint(code)] = string(websocket.AppendClose(nil, nil, code, ""))
	}
	for name, bad := range closes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuided()
			defer close(g.says)
			w := wsWorld(t, setup{settings: func(s *config.Settings) { s.ClientStall = 0 }}, g.serve)
			s := w.talk("plain/x", "k")
			g.says <- "\x81\x02ab" + bad
			if f := s.hears(t); f.payload != "ab" {
				t.Error(f)
			}
			s.wantClose(t, 1014)
			w.idle("tenant:wide")
			list := w.ledger.all()
			if r := list[len(list)-1]; r.Kind != receipts.KindOutcome || r.Ending != receipts.UpstreamAborted {
				t.Errorf("%+v", r)
			}
		})
	}
}
