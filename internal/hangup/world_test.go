package hangup_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"agentgw/internal/hangup"
)

// world is an http.Server behind a listener of this package, over plain TCP or TLS.
type world struct {
	address string
	server  *http.Server
	read    atomic.Int64 // bytes that came to it, on all its connections, as TCP carries them
	pool    *x509.CertPool
	secure  bool
}

// ways runs a test over plain TCP and over TLS.
func ways(t *testing.T, test func(t *testing.T, secure bool)) {
	t.Helper()
	t.Run("plain", func(t *testing.T) { t.Parallel(); test(t, false) })
	t.Run("TLS", func(t *testing.T) { t.Parallel(); test(t, true) })
}

func newWorld(t *testing.T, secure bool, h http.HandlerFunc, changes ...func(*http.Server)) *world {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{address: l.Addr().String(), secure: secure}
	w.server = &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	for _, change := range changes {
		change(w.server)
	}
	watched := hangup.Listener(counting{l, &w.read})
	if secure {
		var certificate tls.Certificate
		certificate, w.pool = aCertificate()
		watched = hangup.TLSListener(counting{l, &w.read}, &tls.Config{Certificates: []tls.Certificate{certificate}}, 10*time.Second)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = w.server.Serve(watched) }()
	t.Cleanup(func() { _ = w.server.Close(); <-done })
	return w
}

// aCertificate is that of httptest, for example.com.
func aCertificate() (tls.Certificate, *x509.CertPool) {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return s.TLS.Certificates[0], pool
}

type counting struct {
	net.Listener
	n *atomic.Int64
}

func (l counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, l.n}, err
}

type countedConn struct {
	net.Conn
	n *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c countedConn) SyscallConn() (syscall.RawConn, error) {
	return c.Conn.(*net.TCPConn).SyscallConn()
}

func (c countedConn) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// client is a connection to the world, and the one of TCP below it.
type client struct {
	net.Conn
	tcp *net.TCPConn
}

func (w *world) dial(t *testing.T) client {
	t.Helper()
	c, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if !w.secure {
		return client{c, c.(*net.TCPConn)}
	}
	secured := tls.Client(c, &tls.Config{RootCAs: w.pool, ServerName: "example.com"})
	if err := secured.Handshake(); err != nil {
		t.Fatal(err)
	}
	return client{secured, c.(*net.TCPConn)}
}

func (c client) send(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// eventually waits for something that other goroutines bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never came that ", what)
		}
	}
}
