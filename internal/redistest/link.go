package redistest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Link is a way to a server that can be slow or cut.
type Link struct {
	Addr  string
	mu    sync.Mutex
	to    string
	slow  time.Duration
	whole chan struct{} // closed while what comes passes
	conns []net.Conn
}

// Between begins a way to the server, which is fast and whole, and ends with the test.
func Between(t testing.TB, s *Server) *Link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	link := &Link{Addr: l.Addr().String(), to: s.Addr, whole: make(chan struct{})}
	close(link.whole)
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			link.mu.Lock()
			to := link.to
			link.mu.Unlock()
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			link.mu.Lock()
			link.conns = append(link.conns, client, server)
			link.mu.Unlock()
			go link.carry(server, client, false)
			go link.carry(client, server, true)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		link.mu.Lock()
		defer link.mu.Unlock()
		for _, c := range link.conns {
			_ = c.Close()
		}
	})
	return link
}

// URL is where its server is, by this way.
func (l *Link) URL() string { return "redis://" + l.Addr }

// Slow has every answer come so much later.
func (l *Link) Slow(by time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slow = by
}

// Lead has connections lead to another server from now on; those that are there stay.
func (l *Link) Lead(to *Server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to.Addr
}

// Drop ends all connections, and lets others be made.
func (l *Link) Drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// Cut has nothing pass, either way, with connections open, until Mend: what was sent
// meanwhile comes then.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole = make(chan struct{})
}

// Mend ends a Cut.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.whole)
}

// carry brings what comes on to where it goes. What follows close behind something slow is no later than
// that, as on a long way.
func (l *Link) carry(to, from net.Conn, answers bool) {
	type part struct {
		text []byte
		due  time.Time
	}
	parts := make(chan part, 1024)
	go func() {
		defer to.Close()
		for p := range parts {
			time.Sleep(time.Until(p.due))
			l.mu.Lock()
			whole := l.whole
			l.mu.Unlock()
			<-whole
			if _, err := to.Write(p.text); err != nil {
				_ = from.Close()
			}
		}
	}()
	defer close(parts)
	for {
		text := make([]byte, 32<<10)
		n, err := from.Read(text)
		if n > 0 {
			p := part{text: text[:n], due: time.Now()}
			if answers {
				l.mu.Lock()
				p.due = p.due.Add(l.slow)
				l.mu.Unlock()
			}
			parts <- p
		}
		if err != nil {
			return
		}
	}
}
